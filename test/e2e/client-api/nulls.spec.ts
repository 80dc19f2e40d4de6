import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

describe.each(['sqlite', 'postgres'] as const)('what there is nothing to say about (%s)', (database) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  let ben: TestUser;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    ann = await homeserver.registerUser('ann');
    ben = await homeserver.registerUser('ben');
  });
  afterAll(() => homeserver?.stop());

  // Typed clients fail where such a key is absent.
  it('is null in lists of devices, of members, of found users and of notifications', async () => {
    const { body: devices } = await ann.request('GET', '/devices');
    expect(devices).toEqual({
      devices: [expect.objectContaining({ device_id: ann.deviceId, display_name: null })],
    });
    expect(Object.keys((devices['devices'] as object[])[0] ?? {})).toEqual(
      expect.arrayContaining(['last_seen_ip', 'last_seen_ts']),
    );
    const { body: room } = await ann.request('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = String(room['room_id']);
    expect((await ben.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).status).toBe(200);
    const { body: members } = await ann.request('GET', `/rooms/${encodeURIComponent(roomId)}/joined_members`);
    expect(members['joined']).toEqual({
      [ann.userId]: { display_name: 'ann', avatar_url: null },
      [ben.userId]: { display_name: 'ben', avatar_url: null },
    });
    const found = await eventually(async () => {
      const { body } = await ann.request('POST', '/user_directory/search', { search_term: 'ben' });
      return (body['results'] as object[]).length > 0 ? body : undefined;
    });
    expect(found['results']).toEqual([{ user_id: ben.userId, display_name: 'ben', avatar_url: null }]);
    expect((await ann.request('GET', '/notifications')).body).toEqual({ notifications: [], next_token: null });
  });
});
