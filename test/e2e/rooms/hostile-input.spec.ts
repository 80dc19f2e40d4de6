import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, join, nextTransaction, ok, outcome, say } from './rooms-client.js';

const v1 = '/_matrix/client/v1';

/** What clients of the worst kind put where a text, a number, a list or an object is expected. */
const values: readonly unknown[] = [
  null,
  -1,
  2 ** 53,
  'a\0b',
  '\ud800',
  "_%\\'; DROP TABLE events; --",
  '*'.repeat(500),
  '𝕏'.repeat(3_000),
  [null],
  ['\0'],
  { '\0': '\0', constructor: 5 },
];

/** Texts for paths and parameters, encoded. */
const pathTexts: readonly string[] = [
  'a%00b',
  '%ED%A0%80',
  '%5F%25%5C',
  '..%2F..',
  '!a:b',
  '%23:',
  '%F0%9D%95%8F'.repeat(50),
  '-1',
  '99999999999999999999',
  '%7B%22types%22:%5B%22%00%22%5D%7D',
];

describe.each(databases)('the rooms API under hostile input (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let eventId: string;

  beforeAll(async () => {
    const wide = { per_second: 100_000, burst_count: 100_000 };
    const settings = {
      rc_reports: wide,
      room_list_publication_rules: [{ action: 'allow' }],
      // Names of servers that cannot be reached would be no fault of this one.
      federation_domain_whitelist: [],
    };
    homeserver = await createTestHomeserver({ database, settings });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    eventId = await say(alice, roomId, 'hello');
  });
  afterAll(() => homeserver?.stop());

  /** Complains about an answer that is a fault of the server, or an error without its code. */
  const fault = async (method: string, path: string, body?: unknown): Promise<string | undefined> => {
    const answer = await alice.request<Record<string, unknown> | undefined>(method, path, body);
    const isFine = answer.status < 400 || (answer.status < 500 && typeof answer.body?.['errcode'] === 'string');
    return isFine
      ? undefined
      : `${method} ${path.slice(0, 200)} ${JSON.stringify(body)?.slice(0, 200) ?? ''}: ${outcome(answer)}`;
  };
  const faults = async (requests: Iterable<readonly [string, string, unknown?]>): Promise<string[]> => {
    const found: string[] = [];
    const rest = [...requests].values();
    const lane = async (): Promise<void> => {
      for (const [method, path, body] of rest) {
        const problem = await fault(method, path, body);
        if (problem !== undefined) found.push(problem);
      }
    };
    await Promise.all(Array.from({ length: 6 }, lane));
    return found;
  };

  it('in bodies: every key with every kind of value', async () => {
    const room = `/rooms/${roomId}`;
    const text = { msgtype: 'm.text', body: 'x' };
    const bodies: readonly (readonly [string, () => string, Readonly<Record<string, unknown>>])[] = [
      [
        'POST',
        () => '/createRoom',
        { name: 1, topic: 1, room_alias_name: 1, room_version: 1, preset: 1, visibility: 1, invite: 1, invite_3pid: 1 },
      ],
      [
        'POST',
        () => '/createRoom',
        { creation_content: 1, initial_state: 1, power_level_content_override: 1, is_direct: 1 },
      ],
      ['POST', () => `/join/${roomId}`, { reason: 1, third_party_signed: 1 }],
      [
        'POST',
        () => `${room}/invite`,
        { user_id: 1, reason: 1, medium: 1, address: 1, id_server: 1, id_access_token: 1 },
      ],
      ['POST', () => `${room}/kick`, { user_id: 1, reason: 1 }],
      ['POST', () => `${room}/ban`, { user_id: 1, reason: 1 }],
      ['POST', () => `${room}/unban`, { user_id: 1, reason: 1 }],
      ['POST', () => `${room}/report`, { reason: 1 }],
      ['POST', () => `${room}/report/${eventId}`, { reason: 1, score: 1 }],
      ['POST', () => `/users/${bob.userId}/report`, { reason: 1 }],
      ['POST', () => `${room}/upgrade`, { new_version: 1 }],
      [
        'POST',
        () => '/publicRooms',
        { limit: 1, since: 1, filter: 1, third_party_instance_id: 1, include_all_networks: 1 },
      ],
      ['PUT', () => `/directory/room/%23${nextTransaction()}:rookery.test`, { room_id: 1 }],
      ['PUT', () => `/directory/list/room/${roomId}`, { visibility: 1 }],
      ['PUT', () => `${room}/redact/${eventId}x/${nextTransaction()}`, { reason: 1, redacts: 1 }],
      ['PUT', () => `${room}/send/m.room.redaction/${nextTransaction()}`, { redacts: 1, reason: 1 }],
      [
        'PUT',
        () => `${room}/send/m.room.message/${nextTransaction()}`,
        { ...text, 'm.relates_to': 1, 'm.new_content': 1, 'm.mentions': 1, url: 1 },
      ],
      ['PUT', () => `${room}/state/m.room.name`, { name: 1 }],
      ['PUT', () => `${room}/state/m.room.topic`, { topic: 1, 'm.topic': 1 }],
      ['PUT', () => `${room}/state/m.room.avatar`, { url: 1, info: 1 }],
      ['PUT', () => `${room}/state/m.room.canonical_alias`, { alias: 1, alt_aliases: 1 }],
      ['PUT', () => `${room}/state/m.room.guest_access`, { guest_access: 1 }],
      ['PUT', () => `${room}/state/m.room.encryption`, { algorithm: 1 }],
      ['PUT', () => `${room}/state/m.room.retention`, { max_lifetime: 1, min_lifetime: 1 }],
      ['PUT', () => `${room}/state/m.space.child/!a:b`, { via: 1, order: 1, suggested: 1 }],
      [
        'PUT',
        () => `${room}/state/m.room.third_party_invite/t`,
        { display_name: 1, public_keys: 1, key_validity_url: 1, public_key: 1 },
      ],
      [
        'PUT',
        () => `${room}/state/m.room.member/${alice.userId}`,
        { membership: 'join', displayname: 1, avatar_url: 1, reason: 1 },
      ],
      ['PUT', () => `${room}/state/m.room.power_levels`, { ban: 1, events: 1, notifications: 1 }],
    ];
    const requests = bodies.flatMap(([method, path, keys]) =>
      Object.keys(keys).flatMap((key) => {
        const others = Object.fromEntries(Object.entries(keys).filter(([name, value]) => name !== key && value !== 1));
        return values.map((value): [string, string, unknown] => [method, path(), { ...others, [key]: value }]);
      }),
    );
    for (const value of values) {
      for (const inner of [
        { event_id: value },
        { rel_type: value, event_id: eventId },
        { rel_type: 'm.annotation', event_id: eventId, key: value },
      ]) {
        requests.push(['PUT', `${room}/send/m.reaction/${nextTransaction()}`, { 'm.relates_to': inner }]);
      }
      requests.push(['POST', '/publicRooms', { filter: { generic_search_term: value } }]);
      requests.push(['POST', '/publicRooms', { filter: { room_types: [value] } }]);
      requests.push([
        'POST',
        '/createRoom',
        { initial_state: [{ type: 'org.example', state_key: value, content: {} }] },
      ]);
      requests.push(['POST', '/createRoom', { initial_state: [{ type: value, content: {} }] }]);
      requests.push(['POST', '/createRoom', { creation_content: { type: value } }]);
      const search = { search_term: value, keys: ['content.body'] };
      requests.push(['POST', '/search', { search_categories: { room_events: search } }]);
      for (const key of ['keys', 'filter', 'order_by', 'event_context', 'include_state', 'groupings']) {
        requests.push(['POST', '/search', { search_categories: { room_events: { search_term: 'x', [key]: value } } }]);
      }
    }
    expect(await faults(requests)).toEqual([]);
  });

  it('in paths and parameters: every place with every kind of text', async () => {
    const templates: readonly (readonly [string, string, unknown?])[] = [
      ['GET', '/rooms/X/state'],
      ['GET', '/rooms/R/state/X/X'],
      ['GET', '/rooms/X/members'],
      ['GET', '/rooms/R/members?at=X'],
      ['GET', '/rooms/R/members?membership=X'],
      ['GET', '/rooms/X/joined_members'],
      ['GET', '/rooms/X/messages?dir=b'],
      ['GET', '/rooms/R/messages?dir=b&from=X'],
      ['GET', '/rooms/R/messages?dir=b&to=X'],
      ['GET', '/rooms/R/messages?dir=f&limit=X'],
      ['GET', '/rooms/R/messages?dir=f&filter=X'],
      ['GET', '/rooms/R/messages?dir=X'],
      ['GET', '/rooms/R/event/X'],
      ['GET', '/rooms/X/event/E'],
      ['GET', '/rooms/R/context/X'],
      ['GET', '/rooms/R/context/E?limit=X'],
      ['GET', '/rooms/R/context/E?filter=X'],
      ['GET', `${v1}/rooms/R/relations/X`],
      ['GET', `${v1}/rooms/R/relations/E/X/X`],
      ['GET', `${v1}/rooms/R/relations/E?from=X`],
      ['GET', `${v1}/rooms/R/relations/E?to=X`],
      ['GET', `${v1}/rooms/R/threads?from=X`],
      ['GET', `${v1}/rooms/R/timestamp_to_event?dir=f&ts=X`],
      ['GET', `${v1}/rooms/R/hierarchy?from=X`],
      ['GET', `${v1}/rooms/R/hierarchy?max_depth=X`],
      ['GET', `${v1}/rooms/X/hierarchy`],
      ['GET', `${v1}/room_summary/X`],
      ['GET', `${v1}/room_summary/R?via=X`],
      ['GET', `${v1}/mutual_rooms?user_id=X`],
      ['GET', '/publicRooms?since=X'],
      ['GET', '/publicRooms?limit=X'],
      ['GET', '/publicRooms?server=X'],
      ['GET', '/directory/room/X'],
      ['GET', '/directory/room/%23X:rookery.test'],
      ['GET', '/directory/list/room/X'],
      ['GET', '/rooms/X/aliases'],
      ['GET', '/rooms/X/initialSync'],
      ['GET', '/sync?since=X'],
      ['GET', '/sync?filter=X'],
      ['DELETE', '/directory/room/%23X:rookery.test'],
      ['PUT', '/directory/room/%23X:rookery.test', { room_id: '!a:b' }],
      ['PUT', '/directory/list/room/X', {}],
      ['PUT', '/rooms/R/send/X/X', {}],
      ['PUT', '/rooms/X/send/m.room.message/T', {}],
      ['PUT', '/rooms/R/state/X/X', {}],
      ['PUT', '/rooms/R/state/m.room.member/X', { membership: 'invite' }],
      ['PUT', '/rooms/R/redact/X/T', {}],
      ['PUT', '/rooms/R/send/m.room.message/T?ts=X', {}],
      ['POST', '/join/X', {}],
      ['POST', '/join/%23X:rookery.test?via=X&server_name=X', {}],
      ['POST', '/knock/X', {}],
      ['POST', '/rooms/X/leave', {}],
      ['POST', '/rooms/X/forget', {}],
      ['POST', '/rooms/X/invite', { user_id: '@bob:rookery.test' }],
      ['POST', '/rooms/X/upgrade', { new_version: '12' }],
      ['POST', '/rooms/X/report', { reason: 'x' }],
      ['POST', '/rooms/R/report/X', { reason: 'x' }],
      ['POST', '/users/X/report', { reason: 'x' }],
      ['POST', '/search?next_batch=X', { search_categories: { room_events: { search_term: 'hello' } } }],
    ];
    const requests = templates.flatMap(([method, template, body]) =>
      pathTexts.map((text): [string, string, unknown?] => {
        const path = template.replaceAll('X', text).replace('/R', `/${roomId}`).replace('/E', `/${eventId}`);
        return [method, path.replace('/T', `/${nextTransaction()}`), body];
      }),
    );
    // Tokens are read by nobody but the server, and yet anybody can make them.
    const numbers = [-1, 1.5, 2 ** 31, Number.MAX_SAFE_INTEGER, 2 ** 60];
    for (const token of [
      ...numbers.map((number) => [number, '!x', false]),
      ...[5, [5, 5], [Number.MAX_SAFE_INTEGER, 5]].map((place) => [place, 'sender', '\0']),
      ...[[5, '\0', false], ['\0'], {}, null],
    ]) {
      const text = Buffer.from(JSON.stringify(token)).toString('base64url');
      requests.push(['GET', `/publicRooms?since=${text}`], ['GET', `${v1}/rooms/${roomId}/hierarchy?from=${text}`]);
      for (const order_by of ['rank', 'recent']) {
        const search = { search_term: 'hello', order_by };
        requests.push(['POST', `/search?next_batch=${text}`, { search_categories: { room_events: search } }]);
      }
    }
    expect(await faults(requests)).toEqual([]);
  });

  it('and goes on as before', async () => {
    await say(bob, roomId, 'still here');
    for (const path of [
      '/sync',
      `/rooms/${roomId}/messages?dir=b&limit=1000`,
      `/rooms/${roomId}/state`,
      '/publicRooms',
      `${v1}/rooms/${roomId}/hierarchy`,
    ]) {
      await ok(alice, 'GET', path);
    }
    const { joined_rooms: rooms } = await ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms');
    for (const each of rooms) expect(outcome(await alice.request('GET', `${v1}/room_summary/${each}`))).toBe('200');
    expect(rooms).toContain(roomId);
  });
});
