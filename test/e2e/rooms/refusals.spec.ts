import { type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  nextTransaction,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
} from './rooms-client.js';

const v1 = '/_matrix/client/v1';
const id = encodeURIComponent;

/** Who asks: the maker of the room, a member without power, one who is banned, one who has left, and a stranger. */
type Asker = 'alice' | 'bob' | 'banned' | 'gone' | 'stranger';
const askers: readonly Asker[] = ['alice', 'bob', 'banned', 'gone', 'stranger'];

/** A request, and what everybody named gets for it; whoever is not named does not ask. */
interface Row {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly wanted: Partial<Record<Asker, string>>;
}

const forbidden = '403 M_FORBIDDEN';
const missing = '404 M_NOT_FOUND';
const invalid = '400 M_INVALID_PARAM';
const lacking = '400 M_MISSING_PARAM';
const bad = '400 M_BAD_JSON';
const outside = { banned: forbidden, gone: forbidden, stranger: forbidden } as const;

describe.each(databases)('what the rooms API refuses (%s)', (database) => {
  let homeserver: TestHomeserver;
  const users = {} as Record<Asker, TestUser>;
  let roomId: string;
  let eventId: string;
  let otherRoomId: string;
  let otherEventId: string;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { rc_reports: { per_second: 1000, burst_count: 1000 } });
    for (const name of askers) users[name] = await homeserver.registerUser(name);
    const { alice, bob, banned, gone } = users;
    roomId = await createRoom(alice, {
      invite: [bob, banned, gone].map((user) => user.userId),
      room_alias_name: 'taken',
    });
    for (const user of [bob, banned, gone]) await join(user, roomId);
    eventId = await say(alice, roomId, 'hello');
    await act(alice, 'ban', roomId, banned);
    await leave(gone, roomId);
    otherRoomId = await createRoom(alice);
    otherEventId = await say(alice, otherRoomId, 'elsewhere');
  });
  afterAll(() => homeserver?.stop());

  const hold = async (rows: readonly Row[]): Promise<void> => {
    const found: string[] = [];
    const wanted: string[] = [];
    for (const row of rows) {
      for (const [asker, expected] of Object.entries(row.wanted) as [Asker, string][]) {
        const name = `${asker}: ${row.method} ${row.path} ${JSON.stringify(row.body)?.slice(0, 80) ?? ''}`;
        found.push(`${name}: ${outcome(await users[asker].request(row.method, row.path, row.body))}`);
        wanted.push(`${name}: ${expected}`);
      }
    }
    expect(found).toEqual(wanted);
  };
  const room = (rest: string): string => `/rooms/${roomId}${rest}`;
  const send = (type: string): string => room(`/send/${type}/${nextTransaction()}`);

  it('to those who are not in the room, or lack the power', async () => {
    const text = { msgtype: 'm.text', body: 'x' };
    const target = { user_id: '@somebody:rookery.test' };
    await hold([
      { method: 'PUT', path: send('m.room.message'), body: text, wanted: outside },
      { method: 'PUT', path: room('/state/m.room.name'), body: { name: 'x' }, wanted: { bob: forbidden, ...outside } },
      {
        method: 'PUT',
        path: room('/state/m.room.canonical_alias'),
        body: { alias: '#x:elsewhere.test' },
        wanted: { bob: forbidden, ...outside },
      },
      {
        method: 'PUT',
        path: room(`/redact/${eventId}/${nextTransaction()}`),
        body: {},
        wanted: { bob: forbidden, ...outside },
      },
      {
        method: 'POST',
        path: room('/kick'),
        body: { user_id: users.alice.userId },
        wanted: { bob: forbidden, ...outside },
      },
      {
        method: 'POST',
        path: room('/ban'),
        body: { user_id: users.alice.userId },
        wanted: { bob: forbidden, ...outside },
      },
      {
        method: 'POST',
        path: room('/unban'),
        body: { user_id: users.banned.userId },
        wanted: { bob: forbidden, ...outside },
      },
      { method: 'POST', path: room('/invite'), body: target, wanted: outside },
      { method: 'POST', path: room('/invite'), body: { user_id: users.banned.userId }, wanted: { alice: forbidden } },
      { method: 'POST', path: room('/invite'), body: { user_id: users.bob.userId }, wanted: { alice: forbidden } },
      { method: 'POST', path: room('/join'), body: {}, wanted: outside },
      { method: 'POST', path: `/join/${id('#taken:rookery.test')}`, body: {}, wanted: outside },
      { method: 'POST', path: `/knock/${roomId}`, body: {}, wanted: { bob: forbidden, ...outside } },
      { method: 'POST', path: room('/upgrade'), body: { new_version: '11' }, wanted: { bob: forbidden, ...outside } },
      {
        method: 'PUT',
        path: `/directory/list/room/${roomId}`,
        body: { visibility: 'public' },
        wanted: { bob: forbidden, ...outside },
      },
      {
        method: 'DELETE',
        path: `/directory/room/${id('#taken:rookery.test')}`,
        wanted: { bob: forbidden, ...outside },
      },
      { method: 'GET', path: room('/joined_members'), wanted: { bob: '200', ...outside } },
      { method: 'GET', path: room('/aliases'), wanted: { bob: '200', ...outside } },
      { method: 'GET', path: room('/state'), wanted: { bob: '200', banned: '200', gone: '200', stranger: forbidden } },
      {
        method: 'GET',
        path: room('/members'),
        wanted: { bob: '200', banned: '200', gone: '200', stranger: forbidden },
      },
      {
        method: 'GET',
        path: room('/messages?dir=b'),
        wanted: { bob: '200', banned: '200', gone: '200', stranger: forbidden },
      },
      {
        method: 'GET',
        path: `${v1}${room('/threads')}`,
        wanted: { bob: '200', banned: '200', gone: '200', stranger: forbidden },
      },
      { method: 'GET', path: `${v1}${room('/hierarchy')}`, wanted: { bob: '200', ...outside } },
      {
        method: 'GET',
        path: `${v1}/room_summary/${roomId}`,
        wanted: { bob: '200', banned: missing, gone: missing, stranger: missing },
      },
      { method: 'POST', path: room('/forget'), body: {}, wanted: { alice: '400 M_UNKNOWN', bob: '400 M_UNKNOWN' } },
    ]);
  });

  it('about rooms that there are not', async () => {
    const none = '!nothing:rookery.test';
    const elsewhere = '!nothing:elsewhere.test';
    const rows: Row[] = [none, elsewhere, 'rubbish'].flatMap((which) => [
      { method: 'PUT', path: `/rooms/${which}/send/m.room.message/1`, body: {}, wanted: { alice: forbidden } },
      { method: 'PUT', path: `/rooms/${which}/state/m.room.name`, body: {}, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/state`, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/state/m.room.name`, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/members`, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/joined_members`, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/messages?dir=b`, wanted: { alice: forbidden } },
      { method: 'GET', path: `/rooms/${which}/event/${eventId}`, wanted: { alice: missing } },
      { method: 'GET', path: `/rooms/${which}/context/${eventId}`, wanted: { alice: missing } },
      { method: 'GET', path: `${v1}/rooms/${which}/relations/${eventId}`, wanted: { alice: missing } },
      { method: 'GET', path: `${v1}/rooms/${which}/threads`, wanted: { alice: forbidden } },
      { method: 'GET', path: `${v1}/rooms/${which}/timestamp_to_event?ts=1&dir=f`, wanted: { alice: forbidden } },
      { method: 'GET', path: `${v1}/rooms/${which}/hierarchy`, wanted: { alice: forbidden } },
      { method: 'POST', path: `/rooms/${which}/report`, body: { reason: 'x' }, wanted: { alice: missing } },
      { method: 'POST', path: `/rooms/${which}/report/${eventId}`, body: {}, wanted: { alice: missing } },
      { method: 'GET', path: `/directory/list/room/${which}`, wanted: { alice: missing } },
      {
        method: 'PUT',
        path: `/directory/list/room/${which}`,
        body: { visibility: 'public' },
        wanted: { alice: missing },
      },
    ]);
    await hold([
      ...rows,
      { method: 'GET', path: `${v1}/room_summary/${none}`, wanted: { alice: missing } },
      { method: 'POST', path: `/join/${none}`, body: {}, wanted: { alice: missing } },
      { method: 'POST', path: `/knock/${none}`, body: {}, wanted: { alice: missing } },
      { method: 'GET', path: room(`/event/${otherEventId}`), wanted: { alice: missing } },
      { method: 'GET', path: room(`/context/${otherEventId}`), wanted: { alice: missing } },
      { method: 'GET', path: room('/event/$nothing'), wanted: { alice: missing } },
      { method: 'GET', path: room('/state/org.example.none/key'), wanted: { alice: missing, stranger: forbidden } },
      { method: 'GET', path: `/directory/room/${id('#nothing:rookery.test')}`, wanted: { alice: missing } },
      { method: 'DELETE', path: `/directory/room/${id('#nothing:rookery.test')}`, wanted: { alice: missing } },
      {
        method: 'GET',
        path: `${v1}${room('/timestamp_to_event?dir=f&ts=99999999999999')}`,
        wanted: { alice: missing },
      },
      {
        method: 'PUT',
        path: room(`/redact/${otherEventId}/${nextTransaction()}`),
        body: {},
        wanted: { alice: invalid },
      },
      { method: 'POST', path: `/users/${id('nobody')}/report`, body: { reason: 'x' }, wanted: { alice: invalid } },
    ]);
  });

  it('for bodies and parameters that are lacking or wrong', async () => {
    await hold([
      ...['kick', 'ban', 'unban'].flatMap((verb): Row[] => [
        { method: 'POST', path: room(`/${verb}`), body: {}, wanted: { alice: lacking } },
        { method: 'POST', path: room(`/${verb}`), body: { user_id: 5 }, wanted: { alice: bad } },
        { method: 'POST', path: room(`/${verb}`), body: { user_id: 'bob' }, wanted: { alice: invalid } },
        { method: 'POST', path: room(`/${verb}`), body: [], wanted: { alice: bad } },
      ]),
      { method: 'POST', path: room('/invite'), body: {}, wanted: { alice: lacking } },
      { method: 'POST', path: room('/invite'), body: { user_id: 'bob' }, wanted: { alice: invalid } },
      { method: 'POST', path: room('/report'), body: {}, wanted: { alice: lacking } },
      { method: 'POST', path: room(`/report/${eventId}`), body: { reason: 5 }, wanted: { alice: bad } },
      { method: 'POST', path: room(`/report/${eventId}`), body: { score: 'high' }, wanted: { alice: bad } },
      { method: 'POST', path: room('/upgrade'), body: {}, wanted: { alice: lacking } },
      {
        method: 'POST',
        path: room('/upgrade'),
        body: { new_version: 'next' },
        wanted: { alice: '400 M_UNSUPPORTED_ROOM_VERSION' },
      },
      { method: 'GET', path: room('/messages?dir=sideways'), wanted: { alice: invalid } },
      { method: 'GET', path: room('/messages?dir=b&limit=many'), wanted: { alice: invalid } },
      { method: 'GET', path: room('/messages?dir=b&from=rubbish'), wanted: { alice: invalid } },
      { method: 'GET', path: room('/messages?dir=b&to=rubbish'), wanted: { alice: invalid } },
      { method: 'GET', path: room('/messages?dir=b&filter=rubbish'), wanted: { alice: '400 M_NOT_JSON' } },
      { method: 'GET', path: room(`/messages?dir=b&filter=${id('{"types":5}')}`), wanted: { alice: bad } },
      { method: 'GET', path: room(`/context/${eventId}?limit=many`), wanted: { alice: invalid } },
      { method: 'GET', path: room('/members?membership=guest'), wanted: { alice: invalid } },
      { method: 'GET', path: room('/members?at=rubbish'), wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/threads?include=some')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/threads?from=rubbish')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/hierarchy?from=rubbish')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/hierarchy?max_depth=-1')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room(`/relations/${eventId}?from=rubbish`)}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/timestamp_to_event?dir=f')}`, wanted: { alice: lacking } },
      { method: 'GET', path: `${v1}${room('/timestamp_to_event?ts=now&dir=f')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}${room('/timestamp_to_event?ts=1&dir=x')}`, wanted: { alice: invalid } },
      { method: 'GET', path: `${v1}/mutual_rooms`, wanted: { alice: lacking } },
      { method: 'GET', path: `${v1}/mutual_rooms?user_id=${id(users.alice.userId)}`, wanted: { alice: invalid } },
      { method: 'GET', path: '/publicRooms?limit=many', wanted: { alice: invalid } },
      { method: 'GET', path: '/publicRooms?since=rubbish', wanted: { alice: invalid } },
      { method: 'POST', path: '/publicRooms', body: { limit: 'many' }, wanted: { alice: bad } },
      { method: 'POST', path: '/publicRooms', body: { filter: { room_types: 'm.space' } }, wanted: { alice: bad } },
      { method: 'GET', path: '/directory/room/rubbish', wanted: { alice: invalid } },
      { method: 'PUT', path: '/directory/room/rubbish', body: { room_id: roomId }, wanted: { alice: invalid } },
      {
        method: 'PUT',
        path: `/directory/room/${id('#x:elsewhere.test')}`,
        body: { room_id: roomId },
        wanted: { alice: invalid },
      },
      { method: 'PUT', path: `/directory/room/${id('#x:rookery.test')}`, body: {}, wanted: { alice: lacking } },
      {
        method: 'PUT',
        path: `/directory/room/${id('#taken:rookery.test')}`,
        body: { room_id: roomId },
        wanted: { alice: '409 M_UNKNOWN' },
      },
      {
        method: 'PUT',
        path: `/directory/list/room/${roomId}`,
        body: { visibility: 'some' },
        wanted: { alice: invalid },
      },
      { method: 'POST', path: '/join/rubbish', body: {}, wanted: { alice: invalid } },
      { method: 'POST', path: '/knock/rubbish', body: {}, wanted: { alice: invalid } },
    ]);
  });

  it('events that cannot be sent are refused with their reason', async () => {
    const nested = JSON.parse('['.repeat(1000) + ']'.repeat(1000)) as unknown;
    await hold([
      { method: 'PUT', path: send('m.room.message'), body: [], wanted: { alice: bad } },
      { method: 'PUT', path: send('m.room.message'), body: { a: 0.5 }, wanted: { alice: bad } },
      { method: 'PUT', path: send('m.room.message'), body: { a: 2 ** 60 }, wanted: { alice: bad } },
      { method: 'PUT', path: send('m.room.message'), body: { a: nested }, wanted: { alice: bad } },
      {
        method: 'PUT',
        path: send('m.room.message'),
        body: { a: 'x'.repeat(66_000) },
        wanted: { alice: '413 M_TOO_LARGE' },
      },
      { method: 'PUT', path: send('t'.repeat(256)), body: {}, wanted: { alice: '413 M_TOO_LARGE' } },
      { method: 'PUT', path: room(`/send/m.room.message/${'t'.repeat(256)}`), body: {}, wanted: { alice: invalid } },
      { method: 'PUT', path: send('m.room.member'), body: { membership: 'leave' }, wanted: { alice: bad } },
      { method: 'PUT', path: send('m.room.create'), body: {}, wanted: { alice: bad } },
      {
        method: 'PUT',
        path: room(`/state/org.example/${'k'.repeat(256)}`),
        body: {},
        wanted: { alice: '413 M_TOO_LARGE' },
      },
      { method: 'PUT', path: room('/state/m.room.create'), body: {}, wanted: { alice: '400 M_BAD_JSON' } },
      {
        method: 'PUT',
        path: room('/state/m.room.canonical_alias'),
        body: { alias: '#nothing:rookery.test' },
        wanted: { alice: '400 M_BAD_ALIAS' },
      },
      {
        method: 'PUT',
        path: room('/state/m.room.canonical_alias'),
        body: { alias: 'rubbish' },
        wanted: { alice: invalid },
      },
      {
        method: 'PUT',
        path: room('/state/m.room.power_levels'),
        body: { users: { bob: 50 } },
        wanted: { alice: '400 M_BAD_JSON' },
      },
      {
        method: 'PUT',
        path: room('/state/m.room.power_levels'),
        body: { ban: 'fifty' },
        wanted: { alice: '400 M_BAD_JSON' },
      },
      {
        method: 'PUT',
        path: room(`/state/m.room.member/${id(users.stranger.userId)}`),
        body: { membership: 'join' },
        wanted: { alice: forbidden },
      },
      {
        method: 'PUT',
        path: room(`/state/m.room.member/${id(users.bob.userId)}`),
        body: { membership: 'waiting' },
        wanted: { alice: bad },
      },
      {
        method: 'PUT',
        path: room(`/state/org.example/${id(users.bob.userId)}`),
        body: {},
        wanted: { alice: forbidden },
      },
      { method: 'PUT', path: room('/state/m.room.server_acl'), body: { allow: [] }, wanted: { alice: bad } },
    ]);
  });

  it('rooms that cannot be made are refused with their reason', async () => {
    const make = (body: unknown, wanted: string): Row => ({
      method: 'POST',
      path: '/createRoom',
      body,
      wanted: { alice: wanted },
    });
    await hold([
      make([], bad),
      make({ preset: 'open_house' }, invalid),
      make({ visibility: 'somewhat' }, invalid),
      make({ invite: 'bob' }, bad),
      make({ invite: ['bob'] }, invalid),
      make({ initial_state: {} }, bad),
      make({ initial_state: [{ content: {} }] }, bad),
      make({ initial_state: [{ type: 'm.room.create', state_key: '', content: {} }] }, '400 M_INVALID_ROOM_STATE'),
      make({ room_version: '0' }, '400 M_UNSUPPORTED_ROOM_VERSION'),
      make({ room_version: 12 }, bad),
      make({ room_alias_name: 'taken' }, '400 M_ROOM_IN_USE'),
      make({ room_alias_name: 'two words' }, invalid),
      make({ power_level_content_override: { users: { '@bob:rookery.test': 'high' } } }, '400 M_INVALID_ROOM_STATE'),
      make({ creation_content: { additional_creators: ['bob'] } }, '400 M_INVALID_ROOM_STATE'),
      make({ name: 'x'.repeat(70_000) }, '413 M_TOO_LARGE'),
    ]);
  });

  it('to those without a session', async () => {
    const found: string[] = [];
    const paths: [string, string][] = [
      ['GET', room('/state')],
      ['GET', room('/state/m.room.name')],
      ['GET', room('/messages?dir=b')],
      ['GET', room(`/event/${eventId}`)],
      ['GET', room(`/context/${eventId}`)],
      ['GET', room('/members')],
      ['GET', room('/joined_members')],
      ['GET', room('/aliases')],
      ['GET', room('/initialSync')],
      ['GET', '/joined_rooms'],
      ['GET', `${v1}${room(`/relations/${eventId}`)}`],
      ['GET', `${v1}${room('/threads')}`],
      ['GET', `${v1}${room('/timestamp_to_event?ts=1')}`],
      ['GET', `${v1}${room('/hierarchy')}`],
      ['GET', `${v1}/mutual_rooms?user_id=x`],
      ['GET', '/publicRooms'],
      ['POST', '/publicRooms'],
      ['POST', '/createRoom'],
      ['POST', `/join/${roomId}`],
      ['POST', `/knock/${roomId}`],
      ['PUT', send('m.room.message')],
      ['PUT', room('/state/m.room.name')],
      ['PUT', room(`/redact/${eventId}/1`)],
      ['PUT', `/directory/room/${id('#x:rookery.test')}`],
      ['DELETE', `/directory/room/${id('#taken:rookery.test')}`],
      ['PUT', `/directory/list/room/${roomId}`],
      ...['join', 'leave', 'forget', 'invite', 'kick', 'ban', 'unban', 'upgrade', 'report', `report/${eventId}`].map(
        (verb): [string, string] => ['POST', room(`/${verb}`)],
      ),
    ];
    for (const [method, path] of paths) {
      const body = method === 'GET' || method === 'DELETE' ? undefined : {};
      const without = outcome(await homeserver.request(method, path, body));
      const wrong = outcome(await homeserver.request(method, path, body, 'nonsense'));
      if (without !== '401 M_MISSING_TOKEN' || wrong !== '401 M_UNKNOWN_TOKEN')
        found.push(`${method} ${path}: ${without}, ${wrong}`);
    }
    expect(found).toEqual([]);
  });

  it('by other methods, and by paths that there are not', async () => {
    await hold([
      { method: 'DELETE', path: room('/state'), wanted: { alice: '405 M_UNRECOGNIZED' } },
      { method: 'POST', path: room('/messages'), body: {}, wanted: { alice: '405 M_UNRECOGNIZED' } },
      { method: 'GET', path: '/createRoom', wanted: { alice: '405 M_UNRECOGNIZED' } },
      { method: 'GET', path: room('/nothing'), wanted: { alice: '404 M_UNRECOGNIZED' } },
    ]);
  });

  it('nothing of what came before it', async () => {
    const { alice, bob } = users;
    // Everything above was refused: the room is as it was.
    expect(await ok(bob, 'GET', room('/joined_members'))).toMatchObject({
      joined: { [alice.userId]: {}, [bob.userId]: {} },
    });
    await setState(alice, roomId, 'm.room.name', { name: 'still mine' });
    expect(outcome(await bob.request('PUT', send('m.room.message'), { msgtype: 'm.text', body: 'x' }))).toBe('200');
    await hold([
      {
        method: 'GET',
        path: room(`/event/${eventId}`),
        wanted: { alice: '200', bob: '200', banned: '200', gone: '200', stranger: missing },
      },
    ]);
  });
});
