import { createHash, randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { MediaLibrary, MediaRemoval, Quarantine } from '@rookery/media';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { registerWithSecret } from '../../support/shared-secret.js';
import { call, download, type FileAnswer, upload } from './support.js';

describe.each(['sqlite', 'postgres'] as const)('the media repository (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let admin: string;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        max_upload_size: '200K',
        max_pending_media_uploads: 2,
        rc_media_create: { per_second: 1_000, burst_count: 1_000 },
        prevent_media_downloads_from: ['blocked.example'],
      },
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    admin = (await registerWithSecret(homeserver, 'root', true)).accessToken;
  });
  afterAll(() => homeserver?.stop());

  const withToken = (path: string, headers: Record<string, string> = {}): Promise<FileAnswer> =>
    call(homeserver, 'GET', path, { token: alice.accessToken, headers });

  it('says how large a file may be', async () => {
    for (const path of ['/_matrix/client/v1/media/config', '/_matrix/media/v3/config', '/_matrix/media/r0/config'])
      expect(await alice.request('GET', path)).toMatchObject({ status: 200, body: { 'm.upload.size': 204_800 } });
    expect(await homeserver.request('GET', '/_matrix/client/v1/media/config')).toMatchObject({ status: 401 });
  });

  it('gives back what was uploaded', async () => {
    const bytes = randomBytes(100_000);
    const media = await upload(homeserver, alice, bytes, 'image/png', 'picture.png');
    expect(media).toMatch(/^rookery\.test\/[A-Za-z]{24}$/);
    const answer = await download(homeserver, bob, media);
    expect(answer.status).toBe(200);
    expect(answer.bytes.equals(bytes)).toBe(true);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'content-type': 'image/png',
      'content-length': '100000',
      'content-disposition': 'inline; filename=picture.png',
      'content-security-policy': expect.stringMatching(/^sandbox; default-src 'none'; script-src 'none'/) as string,
      'cross-origin-resource-policy': 'cross-origin',
      'x-content-type-options': 'nosniff',
      'access-control-allow-origin': '*',
      'cache-control': expect.stringContaining('private') as string,
      etag: `"${createHash('sha256').update(bytes).digest('hex')}"`,
    });
  });

  it('shows new media to nobody without a token', async () => {
    const media = await upload(homeserver, alice, 'secret', 'text/plain');
    for (const version of ['r0', 'v1', 'v3']) {
      const answer = await call(homeserver, 'GET', `/_matrix/media/${version}/download/${media}`);
      expect(answer).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    }
    expect(await call(homeserver, 'GET', `/_matrix/media/v3/thumbnail/${media}?width=1&height=1`)).toMatchObject({
      status: 404,
    });
    // Not even with a token: the old endpoints do not look at it.
    expect(await withToken(`/_matrix/media/v3/download/${media}`)).toMatchObject({ status: 404 });
    expect(await call(homeserver, 'GET', `/_matrix/client/v1/media/download/${media}`)).toMatchObject({
      status: 401,
      body: { errcode: 'M_MISSING_TOKEN' },
    });
  });

  it.each([
    ['text/html', 'page.html', 'text/html; charset=UTF-8', 'attachment; filename=page.html'],
    ['image/svg+xml', 'a b.svg', 'image/svg+xml', 'attachment; filename="a b.svg"'],
    ['text/plain', undefined, 'text/plain; charset=UTF-8', 'inline'],
    ['text/plain; charset=latin1', 'ü.txt', 'text/plain; charset=latin1', "inline; filename*=utf-8''%C3%BC.txt"],
    ['application/pdf', 'a";b', 'application/pdf', 'attachment; filename="a\\";b"'],
    ['not a type', '\r\nx: y\u007f', 'application/octet-stream', 'attachment; filename="x: y"'],
    ['IMAGE/PNG', "it's.png", 'IMAGE/PNG', 'inline; filename="it\'s.png"'],
  ])('serves %s named %j safely', async (type, name, contentType, disposition) => {
    const media = await upload(homeserver, alice, '<script>alert(1)</script>', type, name);
    const { headers } = await download(homeserver, alice, media);
    expect(headers.get('content-type')).toBe(contentType);
    expect(headers.get('content-disposition')).toBe(disposition);
    expect(headers.get('content-security-policy')).toContain('sandbox');
  });

  it('takes the name from the path where one is given', async () => {
    const media = await upload(homeserver, alice, 'x', 'text/plain', 'inside.txt');
    const { headers } = await withToken(`/_matrix/client/v1/media/download/${media}/out%20side.txt`);
    expect(headers.get('content-disposition')).toBe('inline; filename="out side.txt"');
  });

  it('gives parts, and nothing when the client has it already', async () => {
    const media = await upload(homeserver, alice, '0123456789', 'text/plain');
    const path = `/_matrix/client/v1/media/download/${media}`;
    const part = await withToken(path, { range: 'bytes=2-4' });
    expect([part.status, part.bytes.toString(), part.headers.get('content-range')]).toEqual([
      206,
      '234',
      'bytes 2-4/10',
    ]);
    const end = await withToken(path, { range: 'bytes=-3' });
    expect([end.status, end.bytes.toString()]).toEqual([206, '789']);
    const beyond = await withToken(path, { range: 'bytes=10-' });
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, 'bytes */10']);
    const several = await withToken(path, { range: 'bytes=0-1,3-4' });
    expect([several.status, several.bytes.toString()]).toEqual([200, '0123456789']);
    const etag = part.headers.get('etag') ?? '';
    const known = await withToken(path, { 'if-none-match': etag });
    expect([known.status, known.bytes.length]).toEqual([304, 0]);
    const other = await withToken(path, { range: 'bytes=2-4', 'if-range': '"other"' });
    expect(other.status).toBe(200);
    const head = await call(homeserver, 'HEAD', path, { token: alice.accessToken });
    expect([head.status, head.headers.get('content-length'), head.bytes.length]).toEqual([200, '10', 0]);
  });

  it('takes an empty file', async () => {
    const media = await upload(homeserver, alice, '', 'text/plain');
    expect(await download(homeserver, alice, media)).toMatchObject({ status: 200, bytes: Buffer.alloc(0) });
  });

  it('refuses files that are too large, announced or not', async () => {
    const announced = await call(homeserver, 'POST', '/_matrix/media/v3/upload', {
      token: alice.accessToken,
      bytes: Buffer.alloc(204_801),
    });
    expect(announced).toMatchObject({ status: 413, body: { errcode: 'M_TOO_LARGE' } });
    // In pieces, so that nothing says how much there is to come.
    const streamed = await new Promise<{ status: number | undefined; body: string }>((resolve, reject) => {
      const sending = httpRequest(
        `${homeserver.baseUrl}/_matrix/media/v3/upload`,
        { method: 'POST', headers: { authorization: `Bearer ${alice.accessToken}`, 'transfer-encoding': 'chunked' } },
        (response) => {
          let body = '';
          response
            .on('data', (piece: Buffer) => (body += piece.toString()))
            .on('end', () => {
              resolve({ status: response.statusCode, body });
              sending.destroy();
            });
        },
      );
      sending.on('error', reject);
      for (let i = 0; i < 30; i++) sending.write(Buffer.alloc(10_000));
    });
    expect(streamed.status).toBe(413);
    expect(JSON.parse(streamed.body)).toMatchObject({ errcode: 'M_TOO_LARGE' });
    const exact = await upload(homeserver, alice, Buffer.alloc(204_800));
    expect((await download(homeserver, alice, exact)).bytes.length).toBe(204_800);
  });

  it('keeps nothing of an upload that breaks off', async () => {
    const before = await uploads();
    await new Promise<void>((resolve) => {
      const sending = httpRequest(`${homeserver.baseUrl}/_matrix/media/v3/upload`, {
        method: 'POST',
        headers: { authorization: `Bearer ${alice.accessToken}`, 'content-length': 100_000 },
      });
      sending.on('error', () => resolve());
      sending.write(Buffer.alloc(50_000), () => setTimeout(() => sending.destroy(new Error('gone')), 100));
    });
    // Others are served meanwhile and after.
    await upload(homeserver, alice, 'fine');
    expect(await uploads()).toBe(before + 1);
  });

  const uploads = async (): Promise<number> => {
    const page = { offset: 0, limit: 1 };
    return (await homeserver.server.service(MediaLibrary).ofUser(alice.userId, page)).total;
  };

  it.each([
    'rookery.test/..%2F..%2Fhomeserver.db',
    'rookery.test/%2e%2e',
    '../rookery.test',
    '..%2F..%2Fetc/passwd',
    '..%2Fx/abc',
    '.../abc',
    'rookery.test/a.b',
    `rookery.test/${'a'.repeat(300)}`,
    'rookery.test/unknown',
    'blocked.example/abc',
    'not_a_server/abc',
    'rookery.test/a%20b',
  ])('has nothing at %s', async (media) => {
    for (const path of [
      `/_matrix/client/v1/media/download/${media}`,
      `/_matrix/client/v1/media/thumbnail/${media}?width=10&height=10`,
      `/_matrix/media/v3/download/${media}`,
    ]) {
      const answer = await withToken(path);
      expect([path, answer.status]).toEqual([path, 404]);
      expect(answer.body['errcode']).toMatch(/^M_(NOT_FOUND|UNRECOGNIZED)$/);
    }
  });

  it('says when the server of a file cannot be reached, to those with a token', async () => {
    const path = 'download/elsewhere.example/abc';
    expect(await withToken(`/_matrix/client/v1/media/${path}`)).toMatchObject({
      ...{ status: 502, body: { errcode: 'M_UNKNOWN' } },
    });
    expect((await withToken(`/_matrix/media/v3/${path}`)).status).toBe(404);
  });

  describe('a reserved media id', () => {
    const reserve = async (user: TestUser): Promise<{ media: string; expires: number }> => {
      const { status, body } = await user.request<{ content_uri: string; unused_expires_at: number }>(
        'POST',
        '/_matrix/media/v1/create',
        {},
      );
      expect(status).toBe(200);
      return { media: body.content_uri.slice('mxc://'.length), expires: body.unused_expires_at };
    };
    const fill = (user: TestUser, media: string, bytes: string): Promise<FileAnswer> =>
      call(homeserver, 'PUT', `/_matrix/media/v3/upload/${media}`, {
        token: user.accessToken,
        bytes,
        headers: { 'content-type': 'text/plain' },
      });

    it('gets its file once, from its owner', async () => {
      const { media, expires } = await reserve(alice);
      expect(expires - Date.now()).toBeGreaterThan(86_000_000);
      const early = await withToken(`/_matrix/client/v1/media/download/${media}?timeout_ms=0`);
      expect(early).toMatchObject({ status: 504, body: { errcode: 'M_NOT_YET_UPLOADED' } });
      expect(await fill(bob, media, 'x')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
      const waiting = withToken(`/_matrix/client/v1/media/download/${media}?timeout_ms=20000`);
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(await fill(alice, media, 'here it is')).toMatchObject({ status: 200, body: {} });
      expect((await waiting).bytes.toString()).toBe('here it is');
      expect(await fill(alice, media, 'other')).toMatchObject({
        status: 409,
        body: { errcode: 'M_CANNOT_OVERWRITE_MEDIA' },
      });
      expect((await download(homeserver, bob, media)).bytes.toString()).toBe('here it is');
    });

    it('no user reserves more than allowed', async () => {
      const first = await reserve(bob);
      await reserve(bob);
      expect(await bob.request('POST', '/_matrix/media/v1/create', {})).toMatchObject({
        status: 429,
        body: { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: expect.any(Number) as number },
      });
      expect((await fill(bob, first.media, 'x')).status).toBe(200);
      await reserve(bob);
    });

    it('an id that nobody reserved cannot be filled', async () => {
      expect(await fill(alice, 'rookery.test/nothing', 'x')).toMatchObject({ status: 404 });
      expect(await fill(alice, 'elsewhere.example/nothing', 'x')).toMatchObject({ status: 404 });
    });
  });

  it('shows withheld files to administrators who insist, and to nobody else', async () => {
    const quarantine = homeserver.server.service(Quarantine);
    const media = await upload(homeserver, alice, 'withheld contents', 'text/plain');
    const copy = await upload(homeserver, bob, 'withheld contents', 'text/plain');
    const [, mediaId = ''] = media.split('/');
    expect(await quarantine.add([{ origin: undefined, mediaId }], '@root:rookery.test')).toBe(2);
    const bypass = `/_matrix/client/v1/media/download/${media}?admin_unsafely_bypass_quarantine=true`;
    expect(await download(homeserver, alice, media)).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    expect(await download(homeserver, bob, copy)).toMatchObject({ status: 404 });
    expect(await withToken(bypass)).toMatchObject({ status: 404 });
    expect((await call(homeserver, 'GET', bypass, { token: admin })).bytes.toString()).toBe('withheld contents');
    // Whoever uploads it again gets no further.
    const again = await upload(homeserver, alice, 'withheld contents', 'text/plain');
    expect(await download(homeserver, alice, again)).toMatchObject({ status: 404 });
    expect(await quarantine.remove([{ origin: undefined, mediaId }])).toBe(3);
    expect((await download(homeserver, alice, again)).status).toBe(200);
  });

  it('keeps what is in use as an avatar, however old', async () => {
    const [mine, rooms, plain] = await Promise.all(
      ['mine', 'rooms', 'plain'].map((text) => upload(homeserver, bob, text)),
    );
    expect(
      await bob.request('PUT', `/profile/${bob.userId}/avatar_url`, { avatar_url: `mxc://${mine}` }),
    ).toMatchObject({
      status: 200,
    });
    const room = await bob.request<{ room_id: string }>('POST', '/createRoom', {
      initial_state: [{ type: 'm.room.avatar', content: { url: `mxc://${rooms}` } }],
    });
    expect(room.status).toBe(200);
    const deleted = await homeserver.server.service(MediaRemoval).deleteUnusedLocal({
      ...{ unusedSinceTs: Date.now() + 1_000, largerThanBytes: 0 },
      ...{ keepAvatars: true, includeQuarantined: false, includeProtected: false },
    });
    const ids = [mine, rooms, plain].map((media) => media?.split('/')[1] ?? '');
    expect(ids.map((id) => deleted.includes(id))).toEqual([false, false, true]);
    expect(await download(homeserver, bob, plain ?? '')).toMatchObject({ status: 404 });
    expect((await download(homeserver, alice, mine ?? '')).status).toBe(200);
  });

  it('keeps files over a restart', async () => {
    const media = await upload(homeserver, alice, 'lasting', 'text/plain');
    await homeserver.restart();
    expect((await download(homeserver, alice, media)).bytes.toString()).toBe('lasting');
  });
});
