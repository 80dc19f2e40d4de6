import type { Database } from '@rookery/database';
import { historyVisibilityIn } from '@rookery/events';
import type { Membership } from '@rookery/matrix-types';
import type { RoomStateReader } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';

/** An event in the order in which it arrived, and what decides who sees it. */
export interface TrueEvent {
  readonly id: string;
  readonly stream: number;
  readonly roomId: string;
  readonly type: string;
  readonly stateKey: string | undefined;
  readonly sender: string;
  readonly visibility: string;
  /** Memberships of local users by then, the event's own change included. */
  readonly memberships: ReadonlyMap<string, Membership>;
}

/** The current state of a room. */
export interface TrueState {
  /** By `stateKeyOf(type, key)`. */
  readonly ids: ReadonlyMap<string, string>;
  readonly memberships: ReadonlyMap<string, Membership>;
  /** Joined and invited members in the order of their events, else those who went. */
  heroes(except: string): string[];
  readonly joined: number;
  readonly invited: number;
}

interface EventRow {
  readonly event_id: string;
  readonly stream_ordering: number;
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string | null;
  readonly sender: string;
}

interface StateRow {
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
  readonly membership: Membership | null;
  readonly event_stream_ordering: number;
}

/** A user of this server and a room. */
export interface TrueMembership {
  readonly roomId: string;
  readonly membership: Membership;
  readonly eventId: string;
  readonly stream: number;
  readonly sender: string;
}

const visibilityKey = stateKeyOf('m.room.history_visibility', '');

/**
 * What a server knows, read from its tables, and who may see what by the words of the specification: nothing of it comes from
 * what the answers are made with, but for the state of rooms at events.
 */
export class Truth {
  /** By room, in the order of arrival. */
  readonly events = new Map<string, TrueEvent[]>();
  readonly byId = new Map<string, TrueEvent>();
  states = new Map<string, TrueState>();
  /** Of each user of this server. */
  memberships = new Map<string, Map<string, TrueMembership>>();
  gaps = new Map<string, number[]>();
  /** Whom each user ignores, and whom each ever ignored. */
  readonly ignored = new Map<string, ReadonlySet<string>>();
  readonly everIgnored = new Map<string, Set<string>>();
  #named = new Set<string>();
  head = 0;

  constructor(
    private readonly database: Database,
    private readonly reader: RoomStateReader,
    private readonly users: readonly string[],
  ) {}

  /** Takes over what was learned before the server was started anew. */
  static after(former: Truth, database: Database, reader: RoomStateReader): Truth {
    const truth = new Truth(database, reader, former.users);
    for (const [roomId, events] of former.events) truth.events.set(roomId, events);
    for (const [id, event] of former.byId) truth.byId.set(id, event);
    for (const [userId, ignored] of former.ignored) truth.ignored.set(userId, ignored);
    for (const [userId, ignored] of former.everIgnored) truth.everIgnored.set(userId, ignored);
    truth.head = former.head;
    return truth;
  }

  /** Reads what happened since it was last called. */
  async refresh(): Promise<void> {
    const [rows, states, memberships, gaps] = await Promise.all([
      this.database.query<EventRow>(
        `SELECT event_id, stream_ordering, room_id, type, state_key, sender FROM events WHERE stream_ordering > ?
           AND outlier = FALSE AND soft_failed = FALSE AND rejection_reason IS NULL ORDER BY stream_ordering`,
        [this.head],
      ),
      this.database.query<StateRow>(
        'SELECT room_id, type, state_key, event_id, membership, event_stream_ordering FROM current_state_events',
      ),
      this.database.query<StateRow & { user_id: string; sender: string; membership: Membership; forgotten: unknown }>(
        `SELECT l.*, e.sender FROM local_current_membership l JOIN events e ON e.event_id = l.event_id`,
      ),
      this.database.query<{ room_id: string; stream_ordering: number }>(
        'SELECT room_id, stream_ordering FROM timeline_gaps',
      ),
    ]);
    await this.#learn(rows);
    this.states = new Map(
      [...Map.groupBy(states, (row) => row.room_id)].map(([roomId, entries]) => [roomId, stateOf(entries)]),
    );
    this.memberships = new Map(this.users.map((userId) => [userId, new Map<string, TrueMembership>()]));
    for (const row of memberships) {
      const { room_id: roomId, event_id: eventId, membership, event_stream_ordering: stream, sender } = row;
      this.memberships.get(row.user_id)?.set(roomId, { roomId, membership, eventId, stream, sender });
    }
    const names = states.filter(({ type }) => type === 'm.room.name' || type === 'm.room.canonical_alias');
    const contents = await this.#contents(names.map((row) => row.event_id));
    const says = ({ event_id: id, type }: StateRow): boolean => {
      const text = contents.get(id)?.[type === 'm.room.name' ? 'name' : 'alias'];
      return typeof text === 'string' && text !== '';
    };
    this.#named = new Set(names.filter(says).map((row) => row.room_id));
    this.gaps = new Map(
      [...Map.groupBy(gaps, (row) => row.room_id)].map(([roomId, list]) => [
        roomId,
        list.map((row) => row.stream_ordering),
      ]),
    );
  }

  /** Events of a room with `after < stream <= upTo`. */
  between(roomId: string, after: number, upTo: number): TrueEvent[] {
    return (this.events.get(roomId) ?? []).filter(({ stream }) => stream > after && stream <= upTo);
  }

  /** Whether a user may see an event. @spec client-server-api#room-history-visibility */
  maySee(userId: string, event: TrueEvent): boolean {
    if (event.stateKey === undefined && this.ignored.get(userId)?.has(event.sender)) return false;
    if (event.type === 'org.matrix.dummy_event') return false;
    if (event.type === 'm.room.member' && event.stateKey === userId) return true;
    const membership = event.memberships.get(userId);
    if (event.visibility === 'world_readable' || membership === 'join') return true;
    if (event.visibility === 'invited') return membership === 'invite';
    if (event.visibility !== 'shared') return false;
    if (this.memberships.get(userId)?.get(event.roomId)?.membership === 'join') return true;
    return event.stream < this.#endOfStay(userId, event.roomId);
  }

  /** The same of many, those that may be seen only. */
  visible(userId: string, events: readonly TrueEvent[]): TrueEvent[] {
    return events.filter((event) => this.maySee(userId, event));
  }

  /** The membership that the user is told of: what was before an invite of somebody who is ignored, and before others like it. */
  toldMembership(userId: string, roomId: string): TrueMembership | undefined {
    const own = this.memberships.get(userId)?.get(roomId);
    if (own?.membership !== 'invite' || this.ignored.get(userId)?.has(own.sender) !== true) return own;
    const before = (this.events.get(roomId) ?? []).findLast(
      ({ type, stateKey, stream, memberships }) =>
        type === 'm.room.member' && stateKey === userId && stream < own.stream && memberships.get(userId) !== 'invite',
    );
    const membership = before?.memberships.get(userId);
    if (before === undefined || membership === undefined) return own;
    return { roomId, membership, eventId: before.id, stream: before.stream, sender: before.sender };
  }

  ignore(userId: string, ignored: readonly string[]): void {
    this.ignored.set(userId, new Set(ignored));
    const ever = this.everIgnored.get(userId) ?? new Set<string>();
    this.everIgnored.set(userId, ever);
    for (const other of ignored) ever.add(other);
  }

  /** Whether a room has a name or an alias. */
  isNamed(roomId: string): boolean {
    return this.#named.has(roomId);
  }

  /** Whether somebody of this server is in a room. */
  isFollowed(roomId: string): boolean {
    const memberships = this.states.get(roomId)?.memberships;
    return this.users.some((userId) => memberships?.get(userId) === 'join');
  }

  /** Whether somebody was in a room at any event after a position. */
  hasBeenIn(userId: string, roomId: string, after = 0): boolean {
    return this.between(roomId, after, this.head).some(({ memberships }) => memberships.get(userId) === 'join');
  }

  /** Others who are, or are invited, where a user is. */
  inSight(userId: string): Set<string> {
    const others = new Set<string>();
    for (const { memberships } of this.states.values()) {
      if (memberships.get(userId) !== 'join') continue;
      for (const [other, membership] of memberships)
        if (other !== userId && (membership === 'join' || membership === 'invite')) others.add(other);
    }
    return others;
  }

  #endOfStay(userId: string, roomId: string): number {
    const own = (this.events.get(roomId) ?? []).filter(
      (event) => event.type === 'm.room.member' && event.stateKey === userId,
    );
    const last = own.findLastIndex((event) => event.memberships.get(userId) === 'join');
    if (last === -1) return -Infinity;
    // Without an event of its own the stay was ended by state resolution.
    return own[last + 1]?.stream ?? this.memberships.get(userId)?.get(roomId)?.stream ?? Infinity;
  }

  async #learn(rows: readonly EventRow[]): Promise<void> {
    if (rows.length === 0) return;
    const types = [
      ['m.room.history_visibility', ''],
      ...this.users.map((userId) => ['m.room.member', userId] as const),
    ] as [string, string][];
    const states = await this.reader.idsAfter(
      rows.map((row) => row.event_id),
      { types },
    );
    const ids = new Set([...states.values()].flatMap((state) => [...state.values()]));
    const replaced = await this.database.query<{ event_id: string; prev_state: string | null }>(
      `SELECT event_id, prev_state FROM state_events WHERE type = 'm.room.history_visibility'`,
    );
    const before = new Map(replaced.map((row) => [row.event_id, row.prev_state ?? undefined]));
    for (const id of before.values()) if (id !== undefined) ids.add(id);
    const contents = await this.#contents([...ids]);
    for (const row of rows) {
      const state = states.get(row.event_id) ?? new Map<string, string>();
      const memberships = new Map<string, Membership>();
      for (const userId of this.users) {
        const membership = contents.get(state.get(stateKeyOf('m.room.member', userId)) ?? '')?.['membership'];
        if (typeof membership === 'string') memberships.set(userId, membership as Membership);
      }
      const now = historyVisibilityIn(contents.get(state.get(visibilityKey) ?? ''));
      // A change of it is shown by what was and by what is.
      const was = before.has(row.event_id) ? historyVisibilityIn(contents.get(before.get(row.event_id) ?? '')) : now;
      const order = ['joined', 'invited', 'shared', 'world_readable'];
      const event: TrueEvent = {
        id: row.event_id,
        stream: row.stream_ordering,
        roomId: row.room_id,
        type: row.type,
        stateKey: row.state_key ?? undefined,
        sender: row.sender,
        visibility: order[Math.max(order.indexOf(now), order.indexOf(was))]!,
        memberships,
      };
      const list = this.events.get(row.room_id);
      if (list) list.push(event);
      else this.events.set(row.room_id, [event]);
      this.byId.set(event.id, event);
      this.head = Math.max(this.head, event.stream);
    }
  }

  async #contents(eventIds: readonly string[]): Promise<Map<string, Record<string, unknown>>> {
    if (eventIds.length === 0) return new Map();
    const rows = await this.database.query<{ event_id: string; json: string }>(
      `SELECT event_id, json FROM event_json WHERE ${this.database.dialect.anyOf('event_id')}`,
      [eventIds],
    );
    return new Map(
      rows.map((row) => [row.event_id, (JSON.parse(row.json) as { content: Record<string, unknown> }).content]),
    );
  }
}

function stateOf(rows: readonly StateRow[]): TrueState {
  const members = rows
    .filter((row) => row.type === 'm.room.member')
    .toSorted((a, b) => a.event_stream_ordering - b.event_stream_ordering);
  const count = (membership: Membership): number => members.filter((row) => row.membership === membership).length;
  return {
    ids: new Map(rows.map((row) => [stateKeyOf(row.type, row.state_key), row.event_id])),
    memberships: new Map(members.map((row) => [row.state_key, row.membership!])),
    heroes(except) {
      const others = members.filter((row) => row.state_key !== except);
      const here = others.filter((row) => row.membership === 'join' || row.membership === 'invite');
      const chosen = here.length > 0 ? here : others.filter((row) => row.membership !== 'knock');
      return chosen.slice(0, 5).map((row) => row.state_key);
    },
    joined: count('join'),
    invited: count('invite'),
  };
}
