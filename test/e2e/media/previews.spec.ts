import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import sharp from 'sharp';
import { validatedFetch } from '../../support/openapi.js';
import { call, download } from './support.js';

describe.each(['sqlite', 'postgres'] as const)('previews and thumbnails over HTTP (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let web: Server;
  let site: string;
  beforeAll(async () => {
    const image = await sharp({ create: { width: 300, height: 200, channels: 3, background: 'blue' } })
      .png()
      .toBuffer();
    web = createServer((request, response) => {
      if (request.url === '/image') response.writeHead(200, { 'content-type': 'image/png' }).end(image);
      else
        response
          .writeHead(200, { 'content-type': 'text/html' })
          .end('<meta property="og:image" content="image"><title>Site</title>');
    });
    web.listen(0, '127.0.0.1');
    await once(web, 'listening');
    site = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        url_preview_enabled: true,
        url_preview_ip_range_blacklist: ['127.0.0.0/8'],
        url_preview_ip_range_whitelist: ['127.0.0.1'],
      },
    });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(async () => {
    await homeserver?.stop();
    web?.closeAllConnections();
    web?.close();
  });

  it('a link becomes a preview, and its image can be seen in all sizes', async () => {
    const query = `url=${encodeURIComponent(site)}&ts=1510610716656`;
    const { status, body } = await alice.request('GET', `/_matrix/client/v1/media/preview_url?${query}`);
    expect(status).toBe(200);
    expect(body).toMatchObject({ 'og:title': 'Site', 'og:image:width': 300, 'og:image:type': 'image/png' });
    const media = String(body['og:image']).slice('mxc://'.length);
    expect(await download(homeserver, alice, media)).toMatchObject({ status: 200 });
    const thumbnail = await call(
      homeserver,
      'GET',
      `/_matrix/client/v1/media/thumbnail/${media}?width=32&height=32&method=crop`,
      { token: alice.accessToken },
    );
    expect(thumbnail.status).toBe(200);
    expect(thumbnail.headers.get('content-type')).toBe('image/png');
    expect(thumbnail.headers.get('content-disposition')).toBe('inline; filename=thumbnail.png');
    expect(await sharp(thumbnail.bytes).metadata()).toMatchObject({ width: 32, height: 32 });
    for (const path of ['/_matrix/media/v3/preview_url', '/_matrix/media/r0/preview_url'])
      expect((await alice.request('GET', `${path}?${query}`)).status).toBe(200);
  });

  it.each([
    ['', 400, 'M_MISSING_PARAM'],
    ['width=0&height=10', 400, 'M_INVALID_PARAM'],
    ['width=-5&height=10', 400, 'M_INVALID_PARAM'],
    ['width=1.5&height=10', 400, 'M_INVALID_PARAM'],
    ['width=10&height=10&method=fill', 400, 'M_INVALID_PARAM'],
    ['width=10&height=10&animated=yes', 400, 'M_INVALID_PARAM'],
  ])('a thumbnail with %j is refused', async (query, status, errcode) => {
    const answer = await alice.request('GET', `/_matrix/client/v1/media/thumbnail/rookery.test/abc?${query}`);
    expect(answer).toMatchObject({ status, body: { errcode } });
  });

  it('a preview needs an address and a token', async () => {
    expect(await alice.request('GET', '/_matrix/client/v1/media/preview_url')).toMatchObject({ status: 400 });
    expect(await alice.request('GET', '/_matrix/client/v1/media/preview_url?url=nonsense')).toMatchObject({
      status: 400,
    });
    expect(await alice.request('GET', '/_matrix/client/v1/media/preview_url?url=http://127.0.0.2/')).toMatchObject({
      status: 403,
    });
    expect(await homeserver.request('GET', `/_matrix/client/v1/media/preview_url?url=${site}`)).toMatchObject({
      status: 401,
    });
  });
});
