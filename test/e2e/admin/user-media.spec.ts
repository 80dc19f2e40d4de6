import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { call, upload } from '../media/support.js';
import { type AdminRequest, type Json, startAdminWorld } from './support.js';

interface List {
  media: Json[];
  total: number;
  next_token?: number;
}

describe.each(['sqlite', 'postgres'] as const)("the admin API of users' files (%s)", (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  let alice: TestUser;
  let path: string;
  let ids: string[];
  const list = async (query = ''): Promise<List> => (await admin<List>('GET', `${path}${query}`)).body;
  const idsOf = (answer: List): unknown[] => answer.media.map((one) => one['media_id']);

  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({ database }));
    alice = await homeserver.registerUser('alice');
    path = `v1/users/${alice.userId}/media`;
    ids = [];
    for (const [name, text] of [
      ['b.txt', 'medium!'],
      ['c.txt', 'large!!!!'],
      ['a.txt', 'small'],
    ] as const) {
      ids.push((await upload(homeserver, alice, text, 'text/plain', name)).split('/')[1] ?? '');
      // The list is ordered by time: no two files may have the same.
      const now = Date.now();
      await eventually(() => Date.now() > now + 1);
    }
  });
  afterAll(() => homeserver?.stop());

  it('lists them, the newest first', async () => {
    const answer = await list();
    expect(idsOf(answer)).toEqual([...ids].reverse());
    expect(answer).not.toHaveProperty('next_token');
    expect(answer.media[0]).toEqual({
      media_id: ids[2],
      media_type: 'text/plain',
      media_length: 5,
      upload_name: 'a.txt',
      created_ts: expect.any(Number),
      url_cache: null,
      last_access_ts: expect.any(Number),
      quarantined_by: null,
      safe_from_quarantine: false,
      user_id: alice.userId,
      authenticated: true,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
  });

  it('orders them as one likes, in pages', async () => {
    const [b, c, a] = ids;
    expect(idsOf(await list('?order_by=upload_name'))).toEqual([a, b, c]);
    expect(idsOf(await list('?order_by=upload_name&dir=b'))).toEqual([c, b, a]);
    expect(idsOf(await list('?order_by=media_length'))).toEqual([a, b, c]);
    expect(idsOf(await list('?dir=f'))).toEqual([b, c, a]);
    expect(idsOf(await list('?order_by=created_ts'))).toEqual([b, c, a]);
    const page = await list('?order_by=upload_name&limit=2');
    expect(page).toMatchObject({ total: 3, next_token: 2 });
    expect(idsOf(await list('?order_by=upload_name&limit=2&from=2'))).toEqual([c]);
    for (const order of ['media_id', 'last_access_ts', 'media_type', 'quarantined_by', 'safe_from_quarantine'])
      expect((await list(`?order_by=${order}`)).total).toBe(3);
  });

  it.each(['?order_by=size', '?dir=x', '?limit=-1', '?from=x'])('refuses %s', async (query) => {
    for (const method of ['GET', 'DELETE'])
      expect(await admin(method, path + query)).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_PARAM' } });
  });

  it.each(['GET', 'DELETE'])('%s only of users who are there', async (method) => {
    expect((await admin(method, 'v1/users/@nobody:rookery.test/media')).status).toBe(404);
    expect((await admin(method, 'v1/users/@x:elsewhere.test/media')).status).toBe(400);
  });

  it('deletes those that are selected, for good', async () => {
    const [b, c, a] = ids;
    const status = async (id: string | undefined): Promise<number> =>
      (
        await call(homeserver, 'GET', `/_matrix/client/v1/media/download/rookery.test/${id}`, {
          token: alice.accessToken,
        })
      ).status;
    expect(await status(a)).toBe(200);
    const deleted = await admin('DELETE', `${path}?order_by=upload_name&limit=2`);
    expect(deleted).toMatchObject({ status: 200, body: { deleted_media: [a, b], total: 2 } });
    expect(await Promise.all([a, b, c].map(status))).toEqual([404, 404, 200]);
    expect(idsOf(await list())).toEqual([c]);
    expect((await admin('DELETE', path)).body).toEqual({ deleted_media: [c], total: 1 });
    expect((await admin('DELETE', path)).body).toEqual({ deleted_media: [], total: 0 });
  });
});
