import { Injectable } from '@nestjs/common';
import { EventStore, MembershipReader, RoomHeroes, RoomStateReader } from '@rookery/rooms';
import type { JsonObject } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';
import type { CurrentStates, StateDelta } from '../model/rooms.js';

const memberType = 'm.room.member';
const nameTypes: ReadonlyMap<string, string> = new Map([
  ['m.room.name', 'name'],
  ['m.room.canonical_alias', 'alias'],
]);
/** Changes of members whose events are looked at, in a room; beyond it counts as changed. */
const maxCompared = 100;

/** What changed of a room's members and names since the last sync. */
interface SummaryChange {
  /** The numbers of joined or invited members. */
  readonly counts: boolean;
  /** The name, or the alias. */
  readonly names: boolean;
  /** Whose member events did. */
  readonly members: ReadonlySet<string>;
}

/** Member counts and heroes. */
@Injectable()
export class SummarySection {
  constructor(
    private readonly memberships: MembershipReader,
    private readonly heroes: RoomHeroes,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
  ) {}

  /**
   * Summaries of the joined rooms where they changed. Heroes are only named where a room has neither name nor alias.
   * @spec client-server-api#get_matrixclientv3sync
   */
  async read(
    entries: readonly RoomEntry[],
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
    current: CurrentStates,
    context: SyncContext,
  ): Promise<Map<string, JsonObject>> {
    const joined = entries.filter((entry) => entry.section === 'join');
    const whole = new Set(joined.filter((entry) => entry.fresh || context.fullState).map((entry) => entry.roomId));
    const changes = await this.#changes(
      joined.map((entry) => entry.roomId).filter((roomId) => !whole.has(roomId)),
      deltas,
    );
    const rooms = [...whole, ...changes.keys()];
    if (rooms.length === 0) return new Map();
    const [counts, named] = await Promise.all([this.memberships.counts(rooms), this.#named(rooms, current)]);
    const heroes = await this.heroes.of(
      rooms.filter((roomId) => !named.has(roomId)),
      context.userId,
    );
    const summaries = new Map<string, JsonObject>();
    for (const roomId of rooms) {
      const users = heroes.get(roomId);
      const { joined: joinedCount = 0, invited = 0 } = counts.get(roomId) ?? {};
      const change = changes.get(roomId);
      const others = joinedCount + invited - 1;
      // Of more members than are named, one who moves may bring in another who did not; where nobody is left, who went is named.
      const mayDiffer = (): boolean =>
        change !== undefined &&
        !named.has(roomId) &&
        (change.names ||
          (change.members.size > 0 && (others === 0 || others > (users?.length ?? 0))) ||
          users?.some((userId) => change.members.has(userId)) === true);
      if (change !== undefined && !change.counts && !mayDiffer()) continue;
      summaries.set(roomId, {
        'm.joined_member_count': joinedCount,
        'm.invited_member_count': invited,
        ...(named.has(roomId) ? {} : { 'm.heroes': users ?? [] }),
      });
    }
    return summaries;
  }

  /** Rooms in which something happened that summaries are about. */
  async #changes(
    roomIds: readonly string[],
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
  ): Promise<Map<string, SummaryChange>> {
    const moves = new Map<string, Map<string, { before: string | undefined; after: string | undefined }>>();
    const renamed = new Set<string>();
    for (const roomId of roomIds) {
      for (const { type, stateKey, eventId, prevEventId } of deltas.get(roomId) ?? []) {
        if (nameTypes.has(type)) renamed.add(roomId);
        if (type !== memberType) continue;
        const users = moves.get(roomId) ?? new Map<string, { before: string | undefined; after: string | undefined }>();
        moves.set(roomId, users);
        users.set(stateKey, { before: (users.get(stateKey) ?? { before: prevEventId }).before, after: eventId });
      }
    }
    const compared = [...moves.values()].filter((users) => users.size <= maxCompared);
    const ids = compared.flatMap((users) => [...users.values()].flatMap(({ before, after }) => [before, after]));
    const loaded = await this.events.many(ids.filter((id) => id !== undefined));
    const changes = new Map<string, SummaryChange>();
    for (const roomId of new Set([...moves.keys(), ...renamed])) {
      const users = moves.get(roomId) ?? new Map<string, { before: string | undefined; after: string | undefined }>();
      const counts = { join: 0, invite: 0 };
      const count = (eventId: string | undefined, by: number): void => {
        const membership = loaded.get(eventId ?? '')?.event.content['membership'];
        if (membership === 'join' || membership === 'invite') counts[membership] += by;
      };
      for (const { before, after } of users.values()) {
        count(before, -1);
        count(after, 1);
      }
      changes.set(roomId, {
        counts: users.size > maxCompared || counts.join !== 0 || counts.invite !== 0,
        names: renamed.has(roomId),
        members: new Set(users.keys()),
      });
    }
    return changes;
  }

  /** Those of the rooms that have a name or an alias which says something. */
  async #named(roomIds: readonly string[], current: CurrentStates): Promise<Set<string>> {
    const others = roomIds.filter((roomId) => !current.has(roomId));
    const types = [...nameTypes.keys()].map((type) => [type, ''] as const);
    const states = others.length > 0 ? await this.state.currentIdsOf(others, { types }) : new Map<string, never>();
    const idOf = (roomId: string, type: string): string =>
      (current.get(roomId) ?? states.get(roomId))?.get(stateKeyOf(type, '')) ?? '';
    const ids = roomIds.flatMap((roomId) => types.map(([type]) => idOf(roomId, type)));
    const loaded = await this.events.many(ids.filter((id) => id !== ''));
    const named = new Set<string>();
    for (const roomId of roomIds) {
      for (const [type, field] of nameTypes) {
        const text = loaded.get(idOf(roomId, type))?.event.content[field];
        if (typeof text === 'string' && text !== '') named.add(roomId);
      }
    }
    return named;
  }
}

/** The heroes that summaries name, by room. */
export function heroesIn(summaries: ReadonlyMap<string, JsonObject>): Map<string, readonly string[]> {
  return new Map([...summaries].map(([roomId, summary]) => [roomId, (summary['m.heroes'] ?? []) as string[]]));
}
