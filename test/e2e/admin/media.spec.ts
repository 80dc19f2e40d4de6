import { randomBytes } from 'node:crypto';
import type { TestHomeserver, TestUser } from '@rookery/testing';
import { download, upload } from '../media/support.js';
import { createRoom, databases, ok, outcome, say, setState, startHomeserver } from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

describe.each(databases)('files in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database);
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  /** Uploads something that nobody else has; `server/id`. */
  const put = (user: TestUser, bytes: Uint8Array<ArrayBuffer> = new Uint8Array(randomBytes(64))): Promise<string> =>
    upload(homeserver, user, bytes, 'image/png', 'picture.png');
  const statusOf = async (media: string): Promise<number> => (await download(homeserver, bob, media)).status;
  const idOf = (media: string): string => media.slice('rookery.test/'.length);

  it('tells what is known of a file', async () => {
    const media = await put(alice);
    const { media_info: info } = await root.ok<{ media_info: object }>('GET', `/v1/media/${media}`);
    expect(info).toEqual({
      media_origin: null,
      user_id: alice.userId,
      media_id: idOf(media),
      media_type: 'image/png',
      media_length: 64,
      upload_name: 'picture.png',
      created_ts: expect.any(Number) as number,
      filesystem_id: null,
      url_cache: null,
      last_access_ts: expect.any(Number) as number,
      quarantined_by: null,
      authenticated: true,
      safe_from_quarantine: false,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    });
    expect(outcome(await root.call('GET', '/v1/media/rookery.test/nothing'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await root.call('GET', '/v1/media/elsewhere.test/nothing'))).toBe('404 M_NOT_FOUND');
  });

  describe('quarantine', () => {
    it('withholds a file and its copies until it is taken back', async () => {
      const bytes = new Uint8Array(randomBytes(64));
      const [media, copy] = [await put(alice, bytes), await put(bob, bytes)];
      expect(await root.ok('POST', `/v1/media/quarantine/${media}`, {})).toEqual({});
      expect([await statusOf(media), await statusOf(copy)]).toEqual([404, 404]);
      const { media_info: info } = await root.ok<{ media_info: object }>('GET', `/v1/media/${copy}`);
      expect(info).toMatchObject({ quarantined_by: root.user.userId });
      expect(await root.ok('POST', `/v1/media/unquarantine/${media}`, {})).toEqual({});
      expect([await statusOf(media), await statusOf(copy)]).toEqual([200, 200]);
    });

    it('can be looked behind by administrators', async () => {
      const media = await put(alice);
      await root.ok('POST', `/v1/media/quarantine/${media}`);
      const path = `/_matrix/client/v1/media/download/${media}?admin_unsafely_bypass_quarantine=true`;
      expect((await root.user.request('GET', path)).status).toBe(200);
      expect((await alice.request('GET', path)).status).toBe(404);
    });

    it('passes protected files over', async () => {
      const media = await put(alice);
      expect(await root.ok('POST', `/v1/media/protect/${idOf(media)}`)).toEqual({});
      await root.ok('POST', `/v1/media/quarantine/${media}`);
      expect(await statusOf(media)).toBe(200);
      expect(await root.ok('POST', `/v1/media/unprotect/${idOf(media)}`)).toEqual({});
      await root.ok('POST', `/v1/media/quarantine/${media}`);
      expect(await statusOf(media)).toBe(404);
      for (const verb of ['protect', 'unprotect'])
        expect(outcome(await root.call('POST', `/v1/media/${verb}/nothing`))).toBe('404 M_NOT_FOUND');
    });

    it.each(['/v1/room/ROOM/media/quarantine', '/v1/quarantine_media/ROOM'])(
      'withholds what a room shows: %s',
      async (path) => {
        const roomId = await createRoom(alice);
        const far = `mxc://elsewhere.test/${randomBytes(8).toString('hex')}`;
        const [shown, thumbnail, encrypted, other] = [
          await put(alice),
          await put(alice),
          await put(alice),
          await put(alice),
        ];
        await say(alice, roomId, 'look', {
          msgtype: 'm.image',
          url: `mxc://${shown}`,
          info: { thumbnail_url: `mxc://${thumbnail}` },
        });
        await say(alice, roomId, 'again', { msgtype: 'm.image', url: `mxc://${shown}` });
        await say(alice, roomId, 'far', { msgtype: 'm.image', url: far });
        await say(alice, roomId, 'secret', { msgtype: 'm.image', file: { url: `mxc://${encrypted}` } });
        expect(await root.ok('GET', `/v1/room/${roomId}/media`)).toEqual({
          local: [`mxc://${shown}`, `mxc://${thumbnail}`],
          remote: [far],
        });
        expect(await root.ok('POST', path.replace('ROOM', roomId))).toEqual({ num_quarantined: 3 });
        const statuses = await Promise.all([shown, thumbnail, encrypted, other].map(statusOf));
        expect(statuses).toEqual([404, 404, 200, 200]);
      },
    );

    it('withholds what a user has uploaded', async () => {
      const carol = await homeserver.registerUser(`carol${Date.now()}`);
      const files = [await put(carol), await put(carol)];
      const path = `/v1/user/${carol.userId}/media/quarantine`;
      expect(await root.ok('POST', path)).toEqual({ num_quarantined: 2 });
      expect(await Promise.all(files.map(statusOf))).toEqual([404, 404]);
      expect(await root.ok('POST', path)).toEqual({ num_quarantined: 0 });
      expect(outcome(await root.call('POST', '/v1/user/@x:elsewhere.test/media/quarantine'))).toBe('400 M_UNKNOWN');
    });

    it('tells what has changed, in order', async () => {
      interface Changes {
        readonly next_batch: number;
        readonly changes: readonly object[];
      }
      let from = 0;
      for (let page: Changes | undefined; page === undefined || page.changes.length > 0; from = page.next_batch)
        page = await root.ok<Changes>('GET', `/v1/media/quarantine_changes?from=${from}`);
      const media = await put(alice);
      await root.ok('POST', `/v1/media/quarantine/${media}`);
      await root.ok('POST', `/v1/media/unquarantine/${media}`);
      const { changes, next_batch: next } = await root.ok<Changes>('GET', `/v1/media/quarantine_changes?from=${from}`);
      const change = { origin: 'rookery.test', media_id: idOf(media) };
      expect(changes).toEqual([
        { ...change, quarantined: true },
        { ...change, quarantined: false },
      ]);
      expect(await root.ok('GET', `/v1/media/quarantine_changes?from=${next}`)).toEqual({
        next_batch: next,
        changes: [],
      });
      const later = await root.call('GET', `/v1/media/quarantine_changes?from=${next + 1}`);
      expect(outcome(later)).toBe('400 M_INVALID_PARAM');
    });
  });

  describe('deleting', () => {
    it('takes one file away', async () => {
      const media = await put(alice);
      const deleted = { deleted_media: [idOf(media)], total: 1 };
      expect(await root.ok('DELETE', `/v1/media/${media}`)).toEqual(deleted);
      expect(await statusOf(media)).toBe(404);
      expect(outcome(await root.call('DELETE', `/v1/media/${media}`))).toBe('404 M_NOT_FOUND');
      expect(outcome(await root.call('DELETE', '/v1/media/elsewhere.test/x'))).toBe('400 M_UNKNOWN');
    });

    it.each(['/v1/media/delete', '/v1/media/rookery.test/delete'])(
      'takes away what is old or large, but no avatars unless told: %s',
      async (path) => {
        const [avatar, small, large, kept] = [
          await put(alice),
          await put(alice),
          await put(alice, new Uint8Array(randomBytes(500))),
          await put(alice),
        ];
        await ok(alice, 'PUT', `/profile/${alice.userId}/avatar_url`, { avatar_url: `mxc://${avatar}` });
        const roomId = await createRoom(alice);
        await setState(alice, roomId, 'm.room.avatar', { url: `mxc://${kept}` });
        const later = Date.now() + 3_600_000;
        type Deleted = { deleted_media: string[]; total: number };
        const byDate = await root.ok<Deleted>('POST', `${path}?before_ts=${Date.now() - 3_600_000}`);
        expect(byDate).toEqual({ deleted_media: [], total: 0 });
        const bySize = await root.ok<Deleted>('POST', `${path}?before_ts=${later}&size_gt=400`);
        expect(bySize).toEqual({ deleted_media: [idOf(large)], total: 1 });
        const others = await root.ok<Deleted>('POST', `${path}?before_ts=${later}`);
        expect(others.deleted_media).toContain(idOf(small));
        expect(await Promise.all([avatar, small, large, kept].map(statusOf))).toEqual([200, 404, 404, 200]);
        const all = await root.ok<Deleted>('POST', `${path}?before_ts=${later}&keep_profiles=false`);
        expect([...all.deleted_media].sort()).toEqual(expect.arrayContaining([idOf(avatar), idOf(kept)].sort()));
        expect(await statusOf(avatar)).toBe(404);
      },
    );

    it('leaves what is withheld or protected', async () => {
      const [withheld, kept] = [await put(alice), await put(alice)];
      await root.ok('POST', `/v1/media/quarantine/${withheld}`);
      await root.ok('POST', `/v1/media/protect/${idOf(kept)}`);
      const later = Date.now() + 3_600_000;
      await root.ok('POST', `/v1/media/delete?before_ts=${later}&keep_profiles=false`);
      for (const media of [withheld, kept]) expect((await root.call('GET', `/v1/media/${media}`)).status).toBe(200);
    });

    it('empties the cache of other servers’ files', async () => {
      expect(await root.ok('POST', `/v1/purge_media_cache?before_ts=${Date.now()}`)).toEqual({ deleted: 0 });
    });

    it.each([
      ['/v1/media/delete', '400 M_MISSING_PARAM'],
      ['/v1/media/delete?before_ts=1600000000', '400 M_INVALID_PARAM'],
      ['/v1/media/delete?before_ts=-1', '400 M_INVALID_PARAM'],
      ['/v1/media/delete?before_ts=soon', '400 M_INVALID_PARAM'],
      ['/v1/media/delete?before_ts=1600000000000&size_gt=-1', '400 M_INVALID_PARAM'],
      ['/v1/media/delete?before_ts=1600000000000&keep_profiles=1', '400 M_INVALID_PARAM'],
      ['/v1/media/elsewhere.test/delete?before_ts=1600000000000', '400 M_UNKNOWN'],
      ['/v1/purge_media_cache', '400 M_MISSING_PARAM'],
      ['/v1/purge_media_cache?before_ts=1600000000', '400 M_INVALID_PARAM'],
    ])('refuses %s', async (path, expected) => expect(outcome(await root.call('POST', path))).toBe(expected));
  });

  describe('statistics', () => {
    type Usage = {
      users: { user_id: string; displayname: string | null; media_count: number; media_length: number }[];
      total: number;
      next_token?: number;
    };
    const usage = (query: string): Promise<Usage> => root.ok<Usage>('GET', `/v1/statistics/users/media?${query}`);
    let term: string;

    beforeAll(async () => {
      term = `stat${Date.now()}`;
      const [little, much] = [await homeserver.registerUser(`${term}a`), await homeserver.registerUser(`${term}b`)];
      await put(little);
      await put(much);
      await put(much, new Uint8Array(randomBytes(1000)));
      await ok(much, 'PUT', `/profile/${much.userId}/displayname`, { displayname: 'Aardvark' });
    });

    it('tell how much each user has uploaded', async () => {
      const own = { user_id: `@${term}b:rookery.test`, displayname: 'Aardvark', media_count: 2, media_length: 1064 };
      const found = await usage(`search_term=${term}`);
      expect(found.total).toBe(2);
      expect(found.users[1]).toEqual(own);
      for (const order of ['media_length', 'media_count'])
        expect((await usage(`search_term=${term}&order_by=${order}&dir=b&limit=1`)).users).toEqual([own]);
      expect((await usage('search_term=AARD')).users).toEqual([own]);
      expect(await usage(`search_term=${term}&limit=1`)).toMatchObject({ total: 2, next_token: 1 });
      expect(await usage(`search_term=${term}&from=1`)).not.toHaveProperty('next_token');
      expect((await usage(`search_term=${term}&from_ts=${Date.now() + 3_600_000}`)).users).toEqual([]);
      expect((await usage(`search_term=${term}&until_ts=1000`)).users).toEqual([]);
      expect((await usage(`search_term=${term}&order_by=displayname`)).users).toHaveLength(2);
    });

    it.each(['order_by=colour', 'search_term=', 'from_ts=5&until_ts=5', 'dir=x', 'limit=-1', 'from_ts=-1'])(
      'refuse %s',
      async (query) =>
        expect(outcome(await root.call('GET', `/v1/statistics/users/media?${query}`))).toBe('400 M_INVALID_PARAM'),
    );
  });

  it('is for administrators only', async () => {
    const endpoints: EndpointRow[] = [
      ['GET', '/v1/room/!a:b.test/media'],
      ['GET', '/v1/media/rookery.test/x'],
      ['DELETE', '/v1/media/rookery.test/x'],
      ['POST', '/v1/media/delete?before_ts=1600000000000'],
      ['POST', '/v1/media/rookery.test/delete?before_ts=1600000000000'],
      ['POST', '/v1/purge_media_cache?before_ts=1600000000000'],
      ['POST', '/v1/media/quarantine/rookery.test/x'],
      ['POST', '/v1/media/unquarantine/rookery.test/x'],
      ['POST', '/v1/room/!a:b.test/media/quarantine'],
      ['POST', '/v1/quarantine_media/!a:b.test'],
      ['POST', '/v1/user/@alice:rookery.test/media/quarantine'],
      ['POST', '/v1/media/protect/x'],
      ['POST', '/v1/media/unprotect/x'],
      ['GET', '/v1/media/quarantine_changes'],
      ['GET', '/v1/statistics/users/media'],
    ];
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
  });
});
