import type { RoomEvent } from '@rookery/events';
import type { MissingEventsSource } from '@rookery/rooms';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, type databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';
import { applied, remoteName, RemoteServer, type State } from './remote-server.js';
import { type RoomsInside, startWithInside } from './rooms-inside.js';

/** Users of the server that these tests play. */
export const zoe = `@zoe:${remoteName}`;
export const yan = `@yan:${remoteName}`;

/** A room of alice's in which users of the remote server are. */
export interface SharedRoom {
  readonly roomId: string;
  readonly server: RemoteServer;
  readonly state: State;
  readonly head: RoomEvent;
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: { readonly join?: Record<string, { readonly timeline: { readonly events: WireEvent[] } }> };
}

const v1 = '/_matrix/client/v1';
const wide = { per_second: 1000, burst_count: 1000 };
const settings = { room_list_publication_rules: [{ action: 'allow' }], rc_reports: wide };

/** A server that answers nothing of what is asked. */
export const nobodyHelps: MissingEventsSource = {
  missingEvents: () => Promise.resolve([]),
  events: () => Promise.resolve([]),
  authChain: () => Promise.resolve([]),
  stateBefore: () => Promise.resolve(undefined),
};

/** The server under test, with alice, and rooms that it shares with another server. */
export class TwoServers {
  private constructor(
    readonly homeserver: TestHomeserver,
    readonly inside: RoomsInside,
    readonly alice: TestUser,
  ) {}

  static async start(
    database: (typeof databases)[number],
    more: Readonly<Record<string, unknown>> = {},
  ): Promise<TwoServers> {
    // What others say need not be as the specification wants it: nothing is held against its data here.
    const { homeserver, inside } = await startWithInside(() =>
      createTestHomeserver({ database, settings: { ...settings, ...more } }),
    );
    return new TwoServers(homeserver, inside, await homeserver.registerUser('alice'));
  }

  /** The current state of a room, as alice sees it. */
  async stateOf(roomId: string): Promise<State> {
    const state = await ok<WireEvent[]>(this.alice, 'GET', `/rooms/${roomId}/state`);
    return applied(new Map(), ...(await this.inside.events(state.map((event) => event.event_id))));
  }

  /** Hands over an event of the remote server; what became of it. */
  async receive(event: RoomEvent): Promise<string> {
    return (await this.inside.inbound.receive(remoteName, event.roomId, { event })).kind;
  }

  /** A new public room in which zoe and yan are. */
  async shared(version: string, more: object = {}): Promise<SharedRoom> {
    const roomId = await createRoom(this.alice, { preset: 'public_chat', room_version: version, ...more });
    const server = new RemoteServer(version, roomId);
    let state = await this.stateOf(roomId);
    let [head] = await this.inside.heads(roomId);
    for (const userId of [zoe, yan]) {
      const draft = { type: 'm.room.member', stateKey: userId, sender: userId, content: { membership: 'join' } };
      const joined = server.make(draft, head ? [head] : [], state);
      const verdict = await this.receive(joined);
      if (verdict !== 'accepted') throw new Error(`the join was ${verdict}`);
      state = applied(state, joined);
      head = joined;
    }
    if (!head) throw new Error('a room without a head');
    return { roomId, server, state, head };
  }

  /** What alice is told of one room. */
  syncOf(roomId: string, since?: string): Promise<Sync> {
    const filter = encodeURIComponent(JSON.stringify({ room: { rooms: [roomId], timeline: { limit: 100 } } }));
    return ok(this.alice, 'GET', `/sync?filter=${filter}${since === undefined ? '' : `&since=${since}`}`);
  }

  /** Everything that a client asks about a room works, and a message goes through; ids of events that were seen. */
  async stillWorks(roomId: string, since: string): Promise<Set<string>> {
    const { alice } = this;
    const sent = await say(alice, roomId, 'still here');
    const seen = new Set<string>();
    const keep = (events: readonly WireEvent[] = []): void => {
      for (const event of events) seen.add(event.event_id);
    };
    keep((await this.syncOf(roomId, since)).rooms?.join?.[roomId]?.timeline.events);
    if (!seen.has(sent)) throw new Error('a sync did not tell of the message');
    keep((await this.syncOf(roomId)).rooms?.join?.[roomId]?.timeline.events);
    for (const direction of ['b', 'f']) {
      keep(
        (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=${direction}&limit=500`)).chunk,
      );
    }
    const context = await ok<{ events_before: WireEvent[]; state: WireEvent[] }>(
      alice,
      'GET',
      `/rooms/${roomId}/context/${sent}?limit=100`,
    );
    keep(context.events_before);
    keep(context.state);
    keep(await ok<WireEvent[]>(alice, 'GET', `/rooms/${roomId}/state`));
    keep((await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/members`)).chunk);
    for (const path of [
      `/rooms/${roomId}/joined_members`,
      `${v1}/rooms/${roomId}/hierarchy`,
      `${v1}/room_summary/${roomId}`,
      `${v1}/rooms/${roomId}/threads`,
      '/publicRooms',
      `/rooms/${roomId}/aliases`,
    ]) {
      await ok(alice, 'GET', path);
    }
    return seen;
  }
}
