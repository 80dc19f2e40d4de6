import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { operatorOf } from '../admin/operator-world.js';
import { call, download, upload } from './support.js';

describe('settings of media', () => {
  let homeserver: TestHomeserver;
  const start = async (settings: Record<string, unknown>): Promise<void> => {
    homeserver = await createTestHomeserver({ settings });
  };
  afterEach(() => homeserver?.stop());

  it('without authenticated media the old paths give everything', async () => {
    await start({ enable_authenticated_media: false });
    const alice = await homeserver.registerUser('alice');
    const media = await upload(homeserver, alice, 'for all', 'text/plain');
    for (const version of ['r0', 'v1', 'v3']) {
      const answer = await call(homeserver, 'GET', `/_matrix/media/${version}/download/${media}/name.txt`);
      expect([answer.status, answer.bytes.toString()]).toEqual([200, 'for all']);
      expect(answer.headers.get('content-disposition')).toBe('inline; filename=name.txt');
      expect(answer.headers.get('cache-control')).toContain('public');
    }
    expect((await download(homeserver, alice, media)).status).toBe(200);
    // Nothing that is not here is fetched for somebody who does not want that.
    const elsewhere = '/_matrix/media/v3/download/elsewhere.example/abc?allow_remote=false';
    expect(await call(homeserver, 'GET', elsewhere)).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
  });

  it('limits of uploads by period say where to read about them', async () => {
    const own = { time_period: '1h', max_size: 10 };
    const named = { time_period: '1d', max_size: 15, info_uri: 'https://example.org/more', can_upgrade: true };
    await start({ media_upload_limits: [own, named], public_baseurl: 'https://hs.example.org' });
    const alice = await homeserver.registerUser('alice');
    const send = (bytes: number): ReturnType<typeof call> =>
      call(homeserver, 'POST', '/_matrix/media/v3/upload', { token: alice.accessToken, bytes: 'x'.repeat(bytes) });
    const refused = await send(11);
    expect([refused.status, refused.body]).toEqual([
      403,
      {
        errcode: 'M_USER_LIMIT_EXCEEDED',
        error: expect.any(String),
        info_uri: 'https://hs.example.org/_synapse/client/media_upload_limit_exceeded',
      },
    ]);
    const page = await call(homeserver, 'GET', '/_synapse/client/media_upload_limit_exceeded');
    expect(page.status).toBe(200);
    expect(page.headers.get('content-type')).toContain('text/html');
    expect(page.bytes.toString()).toContain('Upload limit reached');
    await homeserver.stop();
    await start({ media_upload_limits: [named] });
    const bob = await homeserver.registerUser('bob');
    const bytes = 'x'.repeat(16);
    expect(await call(homeserver, 'POST', '/_matrix/media/v3/upload', { token: bob.accessToken, bytes })).toMatchObject(
      {
        status: 403,
        body: { errcode: 'M_USER_LIMIT_EXCEEDED', info_uri: 'https://example.org/more', can_upgrade: true },
      },
    );
  });

  it('a server without a media repository has none of its endpoints', async () => {
    await start({ enable_media_repo: false });
    const alice = await homeserver.registerUser('alice');
    for (const [method, path] of [
      ['POST', '/_matrix/media/v3/upload'],
      ['POST', '/_matrix/media/v1/create'],
      ['GET', '/_matrix/client/v1/media/config'],
      ['GET', '/_matrix/client/v1/media/download/rookery.test/x'],
      ['GET', '/_matrix/media/v3/download/rookery.test/x'],
    ] as const) {
      const answer = await call(homeserver, method, path, { token: alice.accessToken });
      expect([path, answer.status, answer.body['errcode']]).toEqual([path, 404, 'M_UNRECOGNIZED']);
    }
  });

  it('avatars are held to theirs', async () => {
    await start({ max_avatar_size: 20, allowed_avatar_mimetypes: ['image/png'] });
    const alice = await homeserver.registerUser('alice');
    const set = async (media: string): Promise<unknown> =>
      (await alice.request('PUT', `/profile/${alice.userId}/avatar_url`, { avatar_url: `mxc://${media}` })).status;
    expect(await set(await upload(homeserver, alice, 'small', 'image/png'))).toBe(200);
    expect(await set(await upload(homeserver, alice, 'small', 'image/gif'))).toBe(403);
    expect(await set(await upload(homeserver, alice, 'x'.repeat(21), 'image/png'))).toBe(403);
    expect(await set('elsewhere.example/unknown')).toBe(403);
    const removed = await alice.request('PUT', `/profile/${alice.userId}/avatar_url`, { avatar_url: '' });
    expect(removed.status).toBe(200);
    // Those that an administrator gives, too, and nothing else of the request is done then.
    const { call: ask } = await operatorOf(homeserver);
    for (const name of ['alice', 'new']) {
      const change = { avatar_url: 'mxc://elsewhere.example/unknown', threepids: [], admin: true };
      expect((await ask('PUT', `/v2/users/@${name}:rookery.test`, change)).status).toBe(403);
    }
    expect((await ask('GET', '/v2/users/@alice:rookery.test')).body['admin']).toBe(false);
    expect((await ask('GET', '/v2/users/@new:rookery.test')).status).toBe(404);
  });

  it('reserving ids is bounded in time', async () => {
    await start({ rc_media_create: { per_second: 0.01, burst_count: 2 } });
    const alice = await homeserver.registerUser('alice');
    const reserve = async (): Promise<number> => (await alice.request('POST', '/_matrix/media/v1/create', {})).status;
    expect([await reserve(), await reserve(), await reserve()]).toEqual([200, 200, 429]);
  });

  it('previews are there when they are switched on', async () => {
    await start({});
    const alice = await homeserver.registerUser('alice');
    const off = await alice.request('GET', '/_matrix/client/v1/media/preview_url?url=http%3A%2F%2Fx.example%2F');
    expect(off).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
  });
});
