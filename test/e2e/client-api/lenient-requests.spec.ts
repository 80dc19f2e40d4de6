import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases, outcome } from '../rooms/rooms-client.js';
import { startUnlimited } from '../hostile/world.js';

describe.each(databases)('requests as clients write them (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  beforeAll(async () => {
    homeserver = await startUnlimited(database);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = await createRoom(alice, { preset: 'public_chat' });
  });
  afterAll(() => homeserver.stop());

  it('may say null for what they leave out', async () => {
    const room = `/rooms/${encodeURIComponent(roomId)}`;
    const cases: [string, string, object, string?][] = [
      ['POST', '/createRoom', { visibility: null, is_direct: null, power_level_content_override: null, preset: null }],
      ['POST', '/createRoom', { invite: null, initial_state: null, creation_content: null, name: null, topic: null }],
      ['POST', `${room}/invite`, { user_id: bob.userId, reason: null }],
      ['POST', `${room}/join`, { reason: null, third_party_signed: null }],
      ['POST', `${room}/read_markers`, { 'm.read': null, 'm.fully_read': null }],
      ['POST', '/publicRooms', { filter: null, since: null, limit: null }],
      ['POST', '/publicRooms', { filter: { generic_search_term: null } }],
      ['POST', '/user_directory/search', { search_term: 'a', limit: null }],
      [
        'POST',
        '/pushers/set',
        {
          ...{ kind: 'http', app_id: 'a', pushkey: 'k', app_display_name: 'A', device_display_name: 'B' },
          ...{ lang: null, append: null, profile_tag: null },
          data: { url: 'https://push.invalid/_matrix/push/v1/notify', format: null },
        },
        '400 M_MISSING_PARAM',
      ],
      [
        'POST',
        '/pushers/set',
        {
          ...{ kind: 'http', app_id: 'a', pushkey: 'k', app_display_name: 'A', device_display_name: 'B' },
          ...{ lang: 'en', append: null, profile_tag: null },
          data: { url: 'https://push.invalid/_matrix/push/v1/notify', format: null },
        },
      ],
      [
        'POST',
        '/delete_devices',
        {
          devices: ['NONE'],
          auth: {
            type: 'm.login.password',
            password: 'password of alice',
            session: null,
            identifier: null,
            user: null,
          },
        },
      ],
      ['PUT', `${room}/typing/${alice.userId}`, { typing: true, timeout: 1500.5 }],
      ['PUT', `${room}/typing/${alice.userId}`, { typing: false, timeout: null }],
      ['POST', '/keys/query', { device_keys: { [alice.userId]: [] }, timeout: null }],
      // A list of devices is none when it is an object.
      ['POST', '/keys/query', { device_keys: { [alice.userId]: { device_id1: true } } }, '400 M_BAD_JSON'],
      ['POST', '/keys/upload', { device_keys: null, one_time_keys: null, fallback_keys: null }],
      [
        'POST',
        '/login',
        {
          ...{ type: 'm.login.password', user: 'nobody', password: 'x' },
          ...{ identifier: null, device_id: null, initial_device_display_name: null, refresh_token: null },
        },
        '403 M_FORBIDDEN',
      ],
      [
        'POST',
        '/login',
        {
          ...{ type: 'm.login.password', medium: 'email', address: 'nobody@example.org', password: 'x' },
          ...{ identifier: null, user: null },
        },
        '403 M_FORBIDDEN',
      ],
      [
        'POST',
        '/register',
        {
          ...{ username: 'newcomer', password: 'a password of length', device_id: null, inhibit_login: null },
          ...{ initial_device_display_name: null, refresh_token: null, auth: { type: null, session: null } },
        },
        '401',
      ],
    ];
    const said = `${room}/send/m.room.message/null`;
    const event = await alice.request<{ event_id: string }>('PUT', said, { msgtype: 'm.text', body: 'x' });
    cases.push(
      ['PUT', `${room}/redact/${event.body.event_id}/null`, { reason: null }],
      ['POST', `${room}/redact/${event.body.event_id}`, { reason: null }],
    );
    for (const [method, path, body, expected = '200'] of cases)
      expect([path, JSON.stringify(body).slice(0, 60), outcome(await alice.request(method, path, body))]).toEqual([
        path,
        JSON.stringify(body).slice(0, 60),
        expected,
      ]);
  });

  it('may leave query parameters empty, but not below nothing', async () => {
    const room = `/rooms/${encodeURIComponent(roomId)}`;
    const got = async (path: string): Promise<string> => outcome(await alice.request('GET', path));
    for (const path of [
      `${room}/messages?dir=b&from=`,
      `${room}/members?membership=`,
      '/sync?since=&timeout=0&filter=',
    ])
      expect([path, await got(path)]).toEqual([path, '200']);
    for (const path of [`${room}/messages?dir=b&limit=-1`, '/sync?timeout=-1', '/publicRooms?limit=-1'])
      expect([path, await got(path)]).toEqual([path, '400 M_INVALID_PARAM']);
  });

  it('may use the prefixes of before the first release', async () => {
    const room = encodeURIComponent(roomId);
    for (const prefix of ['/_matrix/client/unstable', '/_matrix/client/api/v1', '/_matrix/client/r0']) {
      for (const path of ['/account/whoami', `/rooms/${room}/joined_members`, `/rooms/${room}/state`, '/pushrules/'])
        expect([prefix + path, outcome(await alice.request('GET', prefix + path))]).toEqual([prefix + path, '200']);
      for (const path of ['/joined_groups', '/admin/v1/users', '/nothing'])
        expect([prefix + path, outcome(await alice.request('GET', prefix + path))]).toEqual([
          prefix + path,
          '404 M_UNRECOGNIZED',
        ]);
    }
  });

  it('cannot say numbers that would be kept as others', async () => {
    const put = async (text: string): Promise<unknown> => {
      const url = `${homeserver.baseUrl}/_matrix/client/v3/user/${alice.userId}/account_data/org.example`;
      const headers = { authorization: `Bearer ${alice.accessToken}` };
      const response = await fetch(url, { method: 'PUT', headers, body: text });
      return [response.status, ((await response.json()) as { errcode?: string }).errcode];
    };
    expect(await put('{"a":1e999}')).toEqual([400, 'M_BAD_JSON']);
    expect(await put('{"a":[9007199254740993]}')).toEqual([400, 'M_BAD_JSON']);
    expect(await put('{"a":9007199254740991,"b":0.5}')).toEqual([200, undefined]);
  });
});
