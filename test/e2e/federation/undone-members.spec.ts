import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import type { TestUser } from '@rookery/testing';
import {
  createRoom,
  databases,
  join,
  leave,
  ok,
  outcome,
  say,
  setState,
  type WireEvent,
} from '../rooms/rooms-client.js';
import { RemoteServer } from './remote-server.js';
import { nobodyHelps, TwoServers, zoe } from './two-servers.js';

interface LeftRoom {
  readonly timeline: { readonly events: WireEvent[] };
  readonly state: { readonly events: WireEvent[] };
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<string, { readonly summary: Record<string, unknown> }>;
    readonly leave?: Record<string, LeftRoom>;
  };
  readonly device_lists?: { readonly changed?: string[]; readonly left?: string[] };
}

interface Forked {
  readonly roomId: string;
  /** Sets state, on a branch that knows nothing of what came after it began. */
  readonly set: (type: string, content: JsonObject) => Promise<RoomEvent>;
  /** Takes back, on this branch, that everybody may join. */
  readonly close: () => Promise<RoomEvent>;
}

const v1 = '/_matrix/client/v1';
const sliding = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const carl = '@carl:third.test';

describe.each(databases)('memberships that state resolution takes back (%s)', (database) => {
  let servers: TwoServers;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    servers = await TwoServers.start(database);
    ({ alice } = servers);
    bob = await servers.homeserver.registerUser('bob');
  });
  beforeEach(() => servers.inside.useMissingEvents(nobodyHelps));
  afterAll(() => servers?.homeserver.stop());

  const sync = (user: TestUser, since?: string, more = ''): Promise<Sync> =>
    ok(user, 'GET', `/sync?timeout=0${since === undefined ? '' : `&since=${since}`}${more}`);

  /** A public room of alice's in which zoe may do everything. */
  async function forked(levels: Readonly<Record<string, number>> = {}, options: object = {}): Promise<Forked> {
    const roomId = await createRoom(alice, {
      ...{ preset: 'public_chat', room_version: '11', ...options },
      power_level_content_override: { users: { [alice.userId]: 100, [zoe]: 100, ...levels } },
    });
    const server = new RemoteServer('11', roomId);
    const [head] = await servers.inside.heads(roomId);
    const state = new Map(await servers.stateOf(roomId));
    const member = { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join' } };
    const joined = server.make(member, head ? [head] : [], state);
    expect(await servers.receive(joined)).toBe('accepted');
    const before = await servers.stateOf(roomId);
    const set = async (type: string, content: JsonObject): Promise<RoomEvent> => {
      const event = server.make({ type, stateKey: '', sender: zoe, content }, [joined], before);
      expect(await servers.receive(event)).toBe('accepted');
      return event;
    };
    return { roomId, set, close: () => set('m.room.join_rules', { join_rule: 'invite' }) };
  }

  it('lists a room without the state that is taken back with the power of who set it', async () => {
    const { roomId, set } = await forked({ [bob.userId]: 50 }, { visibility: 'public' });
    await join(bob, roomId);
    await setState(bob, roomId, 'm.room.topic', { topic: 'whatever bob likes' });
    await setState(bob, roomId, 'm.room.guest_access', { guest_access: 'can_join' });
    const listed = async (): Promise<unknown[]> => {
      const { chunk } = await ok<{ chunk: Record<string, unknown>[] }>(alice, 'GET', '/publicRooms');
      const room = chunk.find((entry) => entry['room_id'] === roomId);
      return [room?.['topic'], room?.['guest_can_join']];
    };
    expect(await listed()).toEqual(['whatever bob likes', true]);
    await set('m.room.power_levels', { users: { [alice.userId]: 100, [zoe]: 100 } });
    expect(outcome(await alice.request('GET', `/rooms/${roomId}/state/m.room.topic`))).toBe('404 M_NOT_FOUND');
    expect(await listed()).toEqual([undefined, false]);
    await leave(bob, roomId);
  });

  it.each(['', '&use_state_after=true'])('tells a user of this server that the room is left (%s)', async (more) => {
    const { roomId, close } = await forked();
    await join(bob, roomId);
    const seen = await say(alice, roomId, 'while bob was there');
    const { next_batch: since } = await sync(bob, undefined, more);
    const own = await sync(alice);
    await close();
    await say(alice, roomId, 'without bob');
    const answer = await sync(bob, since, more);
    expect(Object.keys(answer.rooms?.join ?? {})).not.toContain(roomId);
    expect(Object.keys(answer.rooms?.leave ?? {})).toContain(roomId);
    const left = answer.rooms!.leave![roomId]!;
    const told = [...left.timeline.events, ...(left.state?.events ?? [])];
    expect(told.filter((event) => event.content['body'] === 'without bob')).toEqual([]);
    expect(told.filter((event) => event.type === 'm.room.member' && event.state_key === bob.userId)).toEqual([]);
    // Once.
    expect((await sync(bob, answer.next_batch, more)).rooms?.leave?.[roomId]).toBeUndefined();
    expect((await sync(bob)).rooms?.join?.[roomId]).toBeUndefined();
    // Others hear that nothing is to be encrypted for bob any more.
    const others = await sync(alice, own.next_batch);
    expect(others.device_lists?.left).toContain(bob.userId);
    expect(others.rooms?.join?.[roomId]?.summary).toMatchObject({ 'm.joined_member_count': 2 });
    // What bob saw stays his, what came later does not become it.
    const { chunk } = await ok<{ chunk: WireEvent[] }>(bob, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    const bodies = chunk.map((event) => event.content['body']);
    expect(bodies).toContain('while bob was there');
    expect(bodies).not.toContain('without bob');
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/event/${seen}`))).toBe('200');
    const send = `/rooms/${roomId}/send/m.room.message/x${more.length}`;
    expect(outcome(await bob.request('PUT', send, { body: 'x', msgtype: 'm.text' }))).toBe('403 M_FORBIDDEN');
    expect((await ok<{ joined_rooms: string[] }>(bob, 'GET', '/joined_rooms')).joined_rooms).not.toContain(roomId);
    await ok(bob, 'POST', `/rooms/${roomId}/forget`, {});
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/messages?dir=b`))).toBe('403 M_FORBIDDEN');
  });

  it('a stay that state resolution ended is no longer one for typing and receipts', async () => {
    const { roomId, close } = await forked();
    await join(bob, roomId);
    const said = await say(alice, roomId, 'while bob was there');
    const type = (): Promise<string> =>
      bob
        .request('PUT', `/rooms/${roomId}/typing/${bob.userId}`, { typing: true, timeout: 20_000 })
        .then((answer) => outcome(answer));
    expect(await type()).toBe('200');
    await close();
    expect(await type()).toBe('403 M_FORBIDDEN');
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/receipt/m.read/${said}`, {}))).toBe('403 M_FORBIDDEN');
  });

  it('a sync that waits is woken when state resolution undoes a membership', async () => {
    const { roomId, close } = await forked();
    await join(bob, roomId);
    const { next_batch } = await sync(bob);
    // Somebody's presence may come before.
    const heard = async (): Promise<Sync> => {
      for (let since = next_batch; ;) {
        const answer = await ok<Sync>(bob, 'GET', `/sync?timeout=60000&since=${since}`);
        if (answer.rooms?.leave) return answer;
        since = answer.next_batch;
      }
    };
    const waiting = heard();
    await close();
    expect(Object.keys((await waiting).rooms?.leave ?? {})).toEqual([roomId]);
  });

  it('goes back to the leave of long ago, and ends the stay where it ended', async () => {
    const { roomId, close } = await forked();
    // Before the fork there was nobody: what is taken back is the second coming only.
    await join(bob, roomId);
    await leave(bob, roomId);
    await join(bob, roomId);
    await say(alice, roomId, 'with bob');
    const { next_batch: since } = await sync(bob);
    await close();
    await say(alice, roomId, 'without bob');
    const answer = await sync(bob, since);
    expect(Object.keys(answer.rooms?.leave ?? {})).toContain(roomId);
    const { chunk } = await ok<{ chunk: WireEvent[] }>(bob, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    expect(chunk.map((event) => event.content['body'])).not.toContain('without bob');
    expect(chunk.map((event) => event.content['body'])).toContain('with bob');
  });

  it('tells sliding sync', async () => {
    const { roomId, close } = await forked();
    await join(bob, roomId);
    const list = { all: { ranges: [[0, 50]], timeline_limit: 5, required_state: [] } };
    const first = await ok<{ pos: string; rooms: Record<string, unknown> }>(bob, 'POST', sliding, { lists: list });
    expect(Object.keys(first.rooms)).toContain(roomId);
    await close();
    const next = await ok<{ rooms: Record<string, Record<string, unknown>>; lists: { all: { count: number } } }>(
      bob,
      'POST',
      `${sliding}?pos=${first.pos}`,
      { lists: list },
    );
    expect(next.rooms[roomId]).toMatchObject({ membership: 'leave' });
    const anew = await ok<{ rooms: Record<string, unknown> }>(bob, 'POST', sliding, { lists: list, conn_id: 'anew' });
    expect(Object.keys(anew.rooms)).not.toContain(roomId);
  });

  it('forgets users of other servers where they were known by that membership only', async () => {
    const { roomId, close } = await forked();
    const server = new RemoteServer('11', roomId);
    const state = await servers.stateOf(roomId);
    const content = { membership: 'join', displayname: `Carl of ${database}` };
    const joined = server.make(
      { type: 'm.room.member', stateKey: carl, sender: carl, content },
      await servers.inside.heads(roomId),
      state,
    );
    expect(await servers.receive(joined)).toBe('accepted');
    const search = (): Promise<{ results: { user_id: string }[] }> =>
      ok(alice, 'POST', '/user_directory/search', { search_term: `Carl of ${database}` });
    expect((await search()).results.map((found) => found.user_id)).toEqual([carl]);
    const { next_batch: since } = await sync(alice);
    await close();
    expect((await search()).results).toEqual([]);
    expect((await sync(alice, since)).device_lists?.left).toContain(carl);
    const { joined: members } = await ok<{ joined: Record<string, unknown> }>(
      alice,
      'GET',
      `/rooms/${roomId}/joined_members`,
    );
    expect(Object.keys(members).sort()).toEqual([alice.userId, zoe].sort());
    expect(outcome(await alice.request('GET', `${v1}/room_summary/${roomId}`))).toBe('200');
  });
});
