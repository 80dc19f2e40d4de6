import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { SettingsError } from '@rookery/platform';
import { eachDatabase, eventually, FakeClock } from '@rookery/testing';
import sharp from 'sharp';
import { MediaLibrary } from '../records/media-library.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture, requesterOf } from '../media.fixture.js';
import { parseMxc } from '../records/media.js';
import { MediaRetention } from '../upkeep/retention.service.js';
import { Previews } from './preview.service.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const alice = requesterOf('@alice:example.org');

eachDatabase('previews', (open) => {
  let web: Server;
  let site: string;
  let media: MediaFixture;
  let clock: FakeClock;
  const pages = new Map<string, Answer>();
  const asked: string[] = [];
  let image: Buffer;

  beforeAll(async () => {
    image = await sharp({ create: { width: 48, height: 24, channels: 3, background: 'red' } })
      .png()
      .toBuffer();
    web = createServer((request, response) => {
      const path = request.url ?? '';
      asked.push(path);
      const page = pages.get(path);
      if (page) page(request, response);
      else response.writeHead(404).end('nothing');
    });
    web.listen(0, '127.0.0.1');
    await once(web, 'listening');
    site = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  });
  afterAll(() => {
    web.closeAllConnections();
    web.close();
  });
  beforeEach(() => {
    pages.clear();
    asked.length = 0;
    pages.set('/image.png', (_, response) => void response.writeHead(200, { 'content-type': 'image/png' }).end(image));
  });
  afterEach(() => media?.close());

  const build = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    clock = new FakeClock();
    media = await buildMedia({
      ...{ database, clock },
      settings: {
        url_preview_enabled: true,
        url_preview_ip_range_blacklist: ['127.0.0.0/8', '10.0.0.0/8', '::1/128'],
        url_preview_ip_range_whitelist: ['127.0.0.1/32'],
        ...settings,
      },
    });
  };
  const html =
    (text: string | Buffer, type = 'text/html'): Answer =>
    (_, response) =>
      void response.writeHead(200, { 'content-type': type }).end(text);
  const preview = (path: string, ts?: number): Promise<Record<string, unknown>> =>
    media.get(Previews).preview(alice, path.includes('://') ? path : site + path, ts);

  it('show what a page says of itself, with its image', async () => {
    await build();
    pages.set(
      '/page',
      html(`<!doctype html><html><head><title>other</title>
        <meta property="og:title" content="A &amp; B"><meta property="og:description" content="About
        them"><meta property="og:image" content="/image.png"><meta property="og:image:width" content="9999">
        <meta property="og:type" content="article"></head><body>text</body></html>`),
    );
    const og = await preview('/page#part');
    expect(og).toEqual({
      'og:title': 'A & B',
      'og:description': 'About them',
      'og:type': 'article',
      'og:url': `${site}/page`,
      'og:image': expect.stringMatching(/^mxc:\/\/example\.org\/2025-01-01_[A-Za-z]{16}$/) as string,
      'og:image:type': 'image/png',
      'og:image:width': 48,
      'og:image:height': 24,
      'matrix:image:size': image.length,
    });
    const key = parseMxc(og['og:image'], 'example.org');
    expect(key && (await media.get(MediaLibrary).find(key))).toMatchObject({
      urlCache: `${site}/image.png`,
      mediaType: 'image/png',
      authenticated: true,
    });
    expect((await media.filesOnDisk())[0]).toMatch(/^url_cache\/2025-01-01\/[A-Za-z]{16}$/);
  });

  it('make do with what there is', async () => {
    await build();
    const cases = [
      [
        '<title>Only a title</title><p>Some text.<script>var x = 1</script><p>More.',
        'Only a title',
        'Some text.\n\nMore.',
      ],
      ['<h1>A <b>heading</b></h1><nav>menu</nav><p>Body', 'A heading', 'A heading\n\nBody'],
      ['<meta name=description content=Said><title>T</title>', 'T', 'Said'],
      ['<meta name="twitter:title" content="Bird"><meta name="twitter:description" content="sings">', 'Bird', 'sings'],
      ['<svg><title>icon</title></svg><title>Page</title>', 'Page', undefined],
      ['<title>\u0000\u0007 odd \n name </title>', 'odd name', undefined],
      ['just text, no markup', undefined, 'just text, no markup'],
      ['', undefined, undefined],
    ] as const;
    for (const [index, [page, title, description]] of cases.entries()) {
      pages.set(`/page${index}`, html(page));
      const og = await preview(`/page${index}`);
      expect([page, og['og:title'], og['og:description']]).toEqual([page, title, description]);
    }
  });

  it('read any encoding, and compressed pages', async () => {
    await build();
    const cyrillic = Buffer.from([0xd4, 0xc5, 0xd3, 0xd4]); // "тест" in KOI8-R
    const titled = (bytes: Buffer): Buffer => Buffer.concat([Buffer.from('<title>'), bytes, Buffer.from('</title>')]);
    pages.set('/header', html(titled(cyrillic), 'text/html; charset=koi8-r'));
    pages.set('/meta', html(Buffer.concat([Buffer.from('<meta charset="koi8-r">'), titled(cyrillic)])));
    pages.set('/nonsense', html(titled(Buffer.from('ok')), 'text/html; charset=no-such-thing'));
    pages.set('/utf16', html(Buffer.from('\ufeff<title>wide</title>', 'utf16le')));
    pages.set('/gzip', (_, response) => {
      response
        .writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'gzip' })
        .end(gzipSync('<title>zip</title>'));
    });
    expect((await preview('/header'))['og:title']).toBe('тест');
    expect((await preview('/meta'))['og:title']).toBe('тест');
    expect((await preview('/nonsense'))['og:title']).toBe('ok');
    expect((await preview('/utf16'))['og:title']).toBe('wide');
    expect((await preview('/gzip'))['og:title']).toBe('zip');
  });

  it('show an image, and nothing of other files', async () => {
    await build();
    expect(await preview('/image.png')).toMatchObject({ 'og:image:width': 48, 'matrix:image:size': image.length });
    pages.set('/file.zip', html('PK', 'application/zip'));
    expect(await preview('/file.zip')).toEqual({});
    pages.set('/fake.png', html('<script>alert(1)</script>', 'image/png'));
    expect(await preview('/fake.png')).toEqual({});
  });

  it('try another image when one cannot be had, and take none that is no image', async () => {
    await build();
    pages.set('/evil', html('<svg xmlns="http://www.w3.org/2000/svg"/>', 'image/png'));
    pages.set(
      '/page',
      html(`<meta property="og:image" content="/evil"><img src=/missing width=100><img src="image.png">`),
    );
    expect(await preview('/page')).toMatchObject({ 'og:image:type': 'image/png' });
    pages.set('/inside', html(`<meta property="og:image" content="http://10.0.0.1/x.png">`));
    expect(await preview('/inside')).not.toHaveProperty('og:image');
    pages.set('/data', html(`<img src="data:image/png;base64,${image.toString('base64')}">`));
    expect(await preview('/data')).toMatchObject({ 'og:image:width': 48 });
  });

  it('take an image from a long address', async () => {
    await build();
    const long = `/image.png?${'s'.repeat(1_500)}`;
    pages.set(long, pages.get('/image.png')!);
    pages.set(
      '/page',
      html(`<meta property="og:image" content=" ${long} "><meta property="og:url" content="${site}${long}">`),
    );
    expect(await preview('/page')).toMatchObject({ 'og:image:width': 48, 'og:url': site + long });
    pages.set('/page2', html(`<meta property="og:url" content="${site}/${'s'.repeat(3_000)}"><title>two</title>`));
    expect(await preview('/page2')).toMatchObject({ 'og:url': `${site}/page2` });
  });

  it('show no image that has too many pixels', async () => {
    await build({ max_image_pixels: 100 });
    expect(await preview('/image.png')).toEqual({});
    expect(await media.filesOnDisk()).toEqual([]);
  });

  it('are kept for a while, and made once for all who ask at the same time', async () => {
    await build();
    pages.set('/page', html('<title>first</title>'));
    await Promise.all([preview('/page'), preview('/page'), preview('/page')]);
    expect(asked.filter((path) => path === '/page').length).toBe(1);
    pages.set('/page', html('<title>second</title>'));
    await clock.advance(3_599_000);
    expect((await preview('/page'))['og:title']).toBe('first');
    await clock.advance(2_000);
    expect((await preview('/page'))['og:title']).toBe('second');
  });

  it('are made of addresses in any script, however long those are', async () => {
    await build();
    // Of different characters, so that nothing gets shorter by being packed, as databases do with what they keep.
    const digest = Array.from({ length: 40 }, (_, n) => createHash('sha256').update(`${n}`).digest());
    const latin = digest
      .map((bytes) => bytes.toString('base64url'))
      .join('')
      .slice(0, 1_700);
    const others = digest.flatMap((bytes) =>
      Array.from({ length: 6 }, (_, n) => String.fromCodePoint(0x4e00 + (bytes.readUInt16LE(2 * n) % 20_000))),
    );
    const path = `/${latin}${encodeURIComponent(others.join(''))}`;
    expect(path.length).toBeGreaterThan(3_800);
    pages.set(path, html('<title>long</title>'));
    for (let n = 0; n < 2; n++) expect((await preview(decodeURIComponent(path)))['og:title']).toBe('long');
    expect(asked).toEqual([path]);
  });

  it('for one user are so many at once, and no more', async () => {
    await build();
    const held: ServerResponse[] = [];
    const slow = Array.from({ length: 40 }, (_, i) => `/slow${i}`);
    for (const path of slow) pages.set(path, (_, response) => void held.push(response));
    const refused: unknown[] = [];
    const looking = slow.map((path) => preview(path).catch((error: unknown) => void refused.push(error)));
    await eventually(() => refused.length >= 20 && held.length >= 3);
    expect(refused[0]).toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    // The others wait behind these, and not before anybody else.
    pages.set('/for-bob', html('<title>for bob</title>'));
    const bob = requesterOf('@bob:example.org');
    expect((await media.get(Previews).preview(bob, `${site}/for-bob`, undefined))['og:title']).toBe('for bob');
    expect([refused.length, held.length]).toEqual([20, 3]);
    for (const path of slow) pages.set(path, (_, response) => void response.end());
    for (const response of held) response.end();
    await Promise.all(looking);
    pages.set('/page', html('<title>for all</title>'));
    expect((await preview('/page'))['og:title']).toBe('for all');
  });

  it('that failed are not tried again at once', async () => {
    await build();
    await expect(preview('/late')).rejects.toMatchObject({ status: 502, errcode: 'M_UNKNOWN' });
    pages.set('/late', html('<title>now</title>'));
    await expect(preview('/late')).rejects.toMatchObject({ status: 502 });
    expect(asked).toEqual(['/late']);
    await clock.advance(61_000);
    expect((await preview('/late'))['og:title']).toBe('now');
  });

  it('are made once for all who ask how it was, also when what was seen then has expired and is still there', async () => {
    await build();
    pages.set('/page', html('<title>a page</title>'));
    await clock.advance(1_800_000);
    const ts = clock.nowMs() - 5_000;
    await preview('/page', ts);
    await clock.advance(3_660_000);
    for (let i = 0; i < 3; i++) await preview('/page', ts);
    expect(asked).toEqual(['/page', '/page']);
  });

  it('and their images go when they are old', async () => {
    await build();
    await preview('/image.png');
    await clock.advance(2 * 86_400_000 - 1_000);
    await media.get(MediaRetention).run(new AbortController().signal);
    expect((await media.filesOnDisk()).length).toBe(1);
    await clock.advance(2_000);
    await media.get(MediaRetention).run(new AbortController().signal);
    // The round of the hour may have taken the row, and be about to take the file.
    await eventually(async () => (await media.filesOnDisk()).length === 0);
  });

  it('use descriptions for embedding: of known sites, and where a page names one', async () => {
    const file = join(tmpdir(), `oembed-${process.pid}.json`);
    const endpoints = [{ schemes: [`http://127.0.0.1/videos/*`, `${site}/videos/*`], url: `${site}/embed.{format}` }];
    await writeFile(file, JSON.stringify([{ provider_name: 'Test', endpoints }]));
    await build({ oembed: { additional_providers: [file], disable_default_providers: true } });
    const video = `${site}/videos/7`;
    pages.set(
      `/embed.json?url=${encodeURIComponent(video)}&format=json`,
      html(
        JSON.stringify({
          ...{
            version: '1.0',
            type: 'video',
            title: 'Film',
            provider_name: 'Test',
            thumbnail_url: `${site}/image.png`,
          },
          cache_age: '7200',
        }),
        'application/json',
      ),
    );
    expect(await preview('/videos/7')).toMatchObject({
      ...{
        'og:title': 'Film',
        'og:type': 'video.other',
        'og:site_name': 'Test',
        'og:image:width': 48,
        'og:url': video,
      },
    });
    await clock.advance(7_000_000);
    await preview('/videos/7');
    expect(asked.filter((path) => path.startsWith('/embed')).length).toBe(1);
    pages.set('/post', html('<link rel=alternate type="application/json+oembed" href="/described">'));
    pages.set(
      '/described',
      html(
        JSON.stringify({
          version: 1,
          type: 'rich',
          author_name: 'Ann',
          html: '<p>Said <b>this</b></p><script>no</script>',
        }),
      ),
    );
    expect(await preview('/post')).toMatchObject({ 'og:title': 'Ann', 'og:description': 'Said this' });
  });

  it.each([
    [{ oembed: { additional_providers: ['/nowhere/providers.json'] } }, /oembed\.additional_providers.*ENOENT/],
    [{ url_preview_url_blacklist: [{ netloc: '^(' }] }, /url_preview_url_blacklist.*regular expression/],
  ])('stop the start when their settings are wrong: %j', async (settings, message) => {
    const failure = await build(settings).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).toBeInstanceOf(SettingsError);
    expect(String(failure)).toMatch(message);
  });

  it('ask for the languages of the settings, and say who asks', async () => {
    await build({ url_preview_accept_language: ['fr', 'de;q=0.5'] });
    let headers: IncomingMessage['headers'] = {};
    pages.set('/page', (request, response) => {
      ({ headers } = request);
      response.end();
    });
    await preview('/page');
    expect(headers).toMatchObject({ 'accept-language': 'fr, de;q=0.5', 'user-agent': 'Rookery (bot)' });
  });

  describe('do not', () => {
    it('exist where they are off', async () => {
      await build({ url_preview_enabled: false });
      await expect(preview('/page')).rejects.toMatchObject({ status: 404, errcode: 'M_UNRECOGNIZED' });
    });

    it('look at what is no address of a page', async () => {
      await build();
      for (const url of [
        'ftp://example.com/',
        'file:///etc/passwd',
        'nonsense',
        'javascript://x',
        `http://x/${'a'.repeat(3_000)}`,
      ])
        await expect(media.get(Previews).preview(alice, url, undefined)).rejects.toMatchObject({ status: 400 });
    });

    it('reach where they may not go, however it is written', async () => {
      await build();
      const written = ['127.0.0.2', '[::1]', '2130706434', '0x7f.2', '[::ffff:127.0.0.2]', '10.1.2.3', '017700000002'];
      for (const host of written)
        await expect(preview(`http://${host}/`)).rejects.toMatchObject({ status: 403, errcode: 'M_UNKNOWN' });
    });

    it('follow redirects to where they may not go, or without end', async () => {
      await build({ url_preview_url_blacklist: [{ path: '/forbidden*' }] });
      const redirect =
        (to: string): Answer =>
        (_, response) =>
          void response.writeHead(302, { location: to }).end();
      pages.set('/inside', redirect('http://127.0.0.2/secret'));
      pages.set('/listed', redirect('/forbidden'));
      pages.set('/forbidden', html('<title>x</title>'));
      pages.set('/round', redirect('/round'));
      pages.set('/file', redirect('file:///etc/passwd'));
      await expect(preview('/inside')).rejects.toMatchObject({ status: 403 });
      await expect(preview('/listed')).rejects.toMatchObject({ status: 403 });
      await expect(preview('/round')).rejects.toMatchObject({ status: 502 });
      await expect(preview('/file')).rejects.toMatchObject({ status: 502 });
    });

    it('read more than the settings allow, not even unpacked', async () => {
      await build({ max_spider_size: '100K' });
      const large = `<title>large</title>${' '.repeat(200_000)}`;
      pages.set('/large', html(large));
      pages.set('/packed', (_, response) => {
        response.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'gzip' }).end(gzipSync(large));
      });
      await expect(preview('/large')).rejects.toMatchObject({ status: 502 });
      await expect(preview('/packed')).rejects.toMatchObject({ status: 502 });
    });

    it('stumble over hostile pages', async () => {
      await build();
      const started = performance.now();
      pages.set('/deep', html('<title>deep</title>' + '<div>'.repeat(300_000)));
      pages.set('/attributes', html(`<meta ${'a=b '.repeat(200_000)}><title>many</title>`));
      pages.set('/metas', html('<meta property="og:x" content="y">'.repeat(100_000)));
      const many = Array.from({ length: 1_000 }, (_, i) => `<meta property="og:x${i}" content="${'y'.repeat(5_000)}">`);
      pages.set('/properties', html(many.join('')));
      pages.set('/open', html('<'.repeat(1_000_000)));
      pages.set('/entities', html(`<title>${'&amp;'.repeat(500_000)}</title>`));
      expect((await preview('/deep'))['og:title']).toBe('deep');
      expect((await preview('/attributes'))['og:title']).toBe('many');
      await preview('/metas');
      const properties = await preview('/properties');
      expect(Object.keys(properties).length).toBeLessThan(60);
      expect(JSON.stringify(properties).length).toBeLessThan(60_000);
      await preview('/open');
      expect(String((await preview('/entities'))['og:title']).length).toBeLessThanOrEqual(1_000);
      expect(performance.now() - started).toBeLessThan(20_000);
    });
  });
});
