import type { DataStores } from '@rookery/database';
import type { RoomVersionRules } from '@rookery/events';
import { domainOf, type Membership } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import { ChainMemory } from '../state/chain-memory.js';
import { type ChainLink, selectChain } from '../state/state-groups.query.js';
import { currentPages } from '../state/state-pages.js';
import { knownRules } from '../store/event-store.js';
import type { GroupPlan } from '../state/state-groups.js';
import type { StagedEvent } from './staged-event.js';
import { type CurrentStateRow, selectExtremities, selectRoom } from './room-snapshot.query.js';

/** A forward extremity: an event that no other names as previous. */
export interface Extremity {
  readonly depth: number;
  /** The state group after it. */
  readonly group: number;
}

/** Whoever looks at a snapshot for longer than it stays the same. */
export interface SnapshotReader {
  /** An entry of current state is about to change. */
  keep(key: string): void;
}

/** Events and state groups that are not in the database yet. */
export interface Unwritten {
  readonly stagedById: ReadonlyMap<string, StagedEvent>;
  readonly groups: ReadonlyMap<number, GroupPlan>;
}

/** Numbers of members by membership. */
export type MemberTally = Record<Membership, number>;

/**
 * What the writer of a room keeps of it between batches, so that a send needs no reads. Changed only after a commit, by
 * {@link RoomSnapshot.apply}; thrown away whenever anything fails.
 */
export class RoomSnapshot {
  /** Chain of the group that equals current state; absent where no group does (several extremities, after a load). */
  chain: readonly ChainLink[] | undefined;
  extremities: ReadonlyMap<string, Extremity> = new Map();
  readonly state = new Map<string, string>();
  readonly memberships = new Map<string, Membership>();
  readonly localMembers = new Set<string>();
  readonly chains = new ChainMemory();
  readonly tally: MemberTally = { join: 0, invite: 0, leave: 0, ban: 0, knock: 0 };
  /** What it says already and the database does not, while a batch is being written. */
  unwritten: Unwritten | undefined;
  readonly readers = new Set<SnapshotReader>();
  // Joined members by other server.
  readonly #servers = new Map<string, number>();
  #remoteServers: readonly string[] | undefined;
  #partialServers: ReadonlySet<string> | undefined;

  constructor(
    readonly roomId: string,
    readonly rules: RoomVersionRules,
    readonly serverName: string,
  ) {}

  /** An estimate that grows with the state held. */
  get sizeBytes(): number {
    return (
      16_384 +
      this.state.size * 250 +
      this.memberships.size * 60 +
      this.localMembers.size * 40 +
      this.#servers.size * 120
    );
  }

  /** Other servers with a joined member. The list is not changed; another membership makes another list. */
  get remoteServers(): readonly string[] {
    return (this.#remoteServers ??= [...new Set([...this.#servers.keys(), ...(this.#partialServers ?? [])])]);
  }

  /** Other servers with a joined member that is known. */
  get memberServers(): Iterable<string> {
    return this.#servers.keys();
  }

  /** Of a room whose members are not all known: the servers that are said to be in it. */
  get partialServers(): ReadonlySet<string> | undefined {
    return this.#partialServers;
  }

  set partialServers(servers: ReadonlySet<string> | undefined) {
    this.#partialServers = servers && new Set([...servers].filter((server) => server !== this.serverName));
    this.#remoteServers = undefined;
  }

  set(key: string, eventId: string | undefined): void {
    for (const reader of this.readers) reader.keep(key);
    if (eventId === undefined) this.state.delete(key);
    else this.state.set(key, eventId);
  }

  setMembership(userId: string, membership: Membership | undefined): void {
    const before = this.memberships.get(userId);
    if (before) this.tally[before]--;
    if (membership) {
      this.tally[membership]++;
      this.memberships.set(userId, membership);
    } else this.memberships.delete(userId);
    const server = domainOf(userId);
    if (server !== this.serverName) this.#setOfServer(server, before === 'join', membership === 'join');
    else if (membership === 'join') this.localMembers.add(userId);
    else this.localMembers.delete(userId);
  }

  #setOfServer(server: string, wasJoined: boolean, isJoined: boolean): void {
    if (wasJoined === isJoined) return;
    const count = (this.#servers.get(server) ?? 0) + (isJoined ? 1 : -1);
    if (count > 0) this.#servers.set(server, count);
    else this.#servers.delete(server);
    if (count === (isJoined ? 1 : 0)) this.#remoteServers = undefined;
  }
}

/** Reads a room's snapshot; `undefined` when the room is not known. */
export async function loadSnapshot(
  { main: db, state }: DataStores,
  roomId: string,
  serverName: string,
  partialServers?: ReadonlySet<string>,
): Promise<RoomSnapshot | undefined> {
  const room = await selectRoom(db, roomId);
  if (!room) return undefined;
  const snapshot = new RoomSnapshot(roomId, knownRules(room.room_version), serverName);
  snapshot.partialServers = partialServers;
  const extremities = await selectExtremities(db, roomId);
  snapshot.extremities = new Map(
    extremities.map((row) => [row.event_id, { depth: row.depth, group: row.state_group }]),
  );
  for await (const page of currentPages<CurrentStateRow>(db, roomId)) {
    for (const row of page) {
      snapshot.set(stateKeyOf(row.type, row.state_key), row.event_id);
      if (row.type === 'm.room.member' && row.membership) snapshot.setMembership(row.state_key, row.membership);
    }
  }
  const groups = new Set(extremities.map((row) => row.state_group));
  if (groups.size === 1) snapshot.chain = await selectChain(state, [...groups][0]!);
  return snapshot;
}
