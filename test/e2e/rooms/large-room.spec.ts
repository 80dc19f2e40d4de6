import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, ok, say, setState, type WireEvent } from './rooms-client.js';

/** More than is read and written in one part. */
const stateCount = 1_100;
const type = 'org.example.piece';

interface SyncRoom {
  readonly state: { readonly events: readonly WireEvent[] };
  readonly timeline: { readonly events: readonly WireEvent[] };
}

/** Whoever asks for all of a large room gets it in parts, which together are what it is. */
describe.each(databases)('a room with much state (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let roomId: string;
  let lastId: string;
  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database });
    alice = await homeserver.registerAdministrator('alice');
    await createRoom(alice, { name: 'small' });
    roomId = await createRoom(alice, { name: 'large' });
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < stateCount) await setState(alice, roomId, type, { n: next, text: 'ü'.repeat(300) }, `k${next++}`);
    };
    await Promise.all(Array.from({ length: 8 }, lane));
    await setState(alice, roomId, type, { n: 'again' }, 'k7');
    for (let n = 0; n < 12; n++) lastId = await say(alice, roomId, `word ${n}`);
  }, 120_000);
  afterAll(() => homeserver?.stop());

  const piecesOf = (events: readonly WireEvent[]): Map<string, unknown> => {
    const pieces = events.filter((event) => event.type === type);
    const byKey = new Map(pieces.map((event) => [event.state_key!, event.content['n']]));
    expect(byKey.size).toBe(pieces.length);
    return byKey;
  };
  const expectAll = (events: readonly WireEvent[]): void => {
    const pieces = piecesOf(events);
    expect(pieces.size).toBe(stateCount);
    expect(pieces.get('k1099')).toBe(1_099);
    expect(pieces.get('k7')).toBe('again');
    expect(events.some((event) => event.type === 'm.room.create')).toBe(true);
  };

  it('is told as a whole by all that tell it', async () => {
    const room = `/rooms/${roomId}`;
    const state = await ok<WireEvent[]>(alice, 'GET', `${room}/state`);
    expectAll(state);
    expect(state.find((event) => event.state_key === 'k7')?.unsigned?.['prev_content']).toMatchObject({ n: 7 });
    const context = await ok<{ state: WireEvent[] }>(
      alice,
      'GET',
      `${room}/context/${encodeURIComponent(lastId)}?limit=3`,
    );
    expectAll(context.state);
    const first = await ok<{ state: WireEvent[] }>(alice, 'GET', `${room}/initialSync?limit=5`);
    expectAll(first.state);
    const all = await ok<{ rooms: { room_id: string; state: WireEvent[] }[] }>(alice, 'GET', '/initialSync?limit=5');
    expectAll(all.rooms.find((each) => each.room_id === roomId)!.state);
    const path = `${homeserver.baseUrl}/_synapse/admin/v1/rooms/${encodeURIComponent(roomId)}/state`;
    const answer = await fetch(path, { headers: { authorization: `Bearer ${alice.accessToken}` } });
    expectAll(((await answer.json()) as { state: WireEvent[] }).state);
  });

  it.each(['', '&use_state_after=true', '&full_state=true'])('is told by a first sync: %s', async (query) => {
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 3 } } }));
    const sync = await ok<{ rooms: { join: Record<string, SyncRoom & { state_after?: SyncRoom['state'] }> } }>(
      ...([alice, 'GET', `/sync?filter=${filter}${query}`] as const),
    );
    expect(Object.keys(sync.rooms.join)).toHaveLength(2);
    const { state, state_after: after, timeline } = sync.rooms.join[roomId]!;
    expectAll((after ?? state).events);
    expect(timeline.events.at(-1)?.event_id).toBe(lastId);
  });

  it('is told by sliding sync, also where it comes into the window later', async () => {
    const path = `${homeserver.baseUrl}/_matrix/client/unstable/org.matrix.simplified_msc3575/sync`;
    const slide = async (query: string, end: number): Promise<{ pos: string; rooms: Record<string, unknown> }> => {
      const lists = { all: { ranges: [[0, end]], timeline_limit: 3, required_state: [['*', '*']] } };
      const headers = { authorization: `Bearer ${alice.accessToken}`, 'content-type': 'application/json' };
      const answer = await fetch(`${path}?timeout=0${query}`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ lists }),
      });
      return (await answer.json()) as { pos: string; rooms: Record<string, unknown> };
    };
    const first = await slide('', 5);
    expectAll((first.rooms[roomId] as { required_state: WireEvent[] }).required_state);
    const small = await createRoom(alice, { name: 'last' });
    const narrow = await slide('', 0);
    expect(Object.keys(narrow.rooms)).toEqual([small]);
    const wide = await slide(`&pos=${encodeURIComponent(narrow.pos)}`, 5);
    expectAll((wide.rooms[roomId] as { required_state: WireEvent[] }).required_state);
  });
});
