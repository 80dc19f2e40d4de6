import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { ownTurn } from '@rookery/platform';
import {
  EventStore,
  isServable,
  MembershipHistory,
  MembershipReader,
  PartialRooms,
  RoomHeroes,
  RoomStateReader,
  type StoredEvent,
} from '@rookery/rooms';
import { splitStateKey, stateKeyOf } from '@rookery/state-res';
import type { TakeMembers, WantedMembers } from '../request/device-members.js';
import { claimedMembers, claimKey } from '../sections/claimed-members.js';
import { idsOfRooms } from '../sections/state-ids.js';
import type { RoomPart } from './room-plan.js';
import type { StateDelta } from '../model/rooms.js';

type StateIds = Map<string, string>;

/** What goes with the timelines of rooms. */
export interface RoomDetails {
  /** State events of all rooms, a page at a time. */
  readonly state: AsyncIterable<readonly StoredEvent[]>;
  /** Name, avatar, heroes and numbers of members, of rooms where they are new. */
  readonly summaries: ReadonlyMap<string, JsonObject>;
}

const memberType = 'm.room.member';
/** Queries for what rooms name; beyond so many different wishes, one for all. */
const maxGroups = 8;
/** Entries that are looked at before others get a turn. */
const entriesPerTurn = 5_000;
const nameKey = stateKeyOf('m.room.name', '');
const avatarKey = stateKeyOf('m.room.avatar', '');

/** State and summaries of rooms, in a bounded number of queries for all of them. */
@Injectable()
export class RoomDetailsReader {
  constructor(
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    private readonly memberships: MembershipReader,
    private readonly heroes: RoomHeroes,
    private readonly history: MembershipHistory,
    private readonly partial: PartialRooms,
  ) {}

  /**
   * @param parts joined rooms, and rooms that the user was sent away from
   * @param takeMembers what the client lacks of the members that go with timelines
   */
  async read(
    parts: readonly RoomPart[],
    timelines: ReadonlyMap<string, readonly StoredEvent[]>,
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
    userId: string,
    takeMembers: TakeMembers,
  ): Promise<RoomDetails> {
    const joined = parts.filter((part) => part.section === 'join');
    const left = parts.filter((part) => part.section === 'leave');
    const needed = new Map(
      joined.map((part) => [
        part.roomId,
        part.config.requiredState.isLazy ? membersOf(timelines.get(part.roomId)) : none,
      ]),
    );
    const said = joined.flatMap(({ roomId }) => (needed.get(roomId) === none ? [] : (timelines.get(roomId) ?? [])));
    const [current, atLeave, claimed, completed] = await Promise.all([
      this.#currentState(joined, needed, userId),
      this.#stateAtLeave(left, userId),
      claimedMembers(this.partial, this.events, said),
      this.#completed(joined, deltas),
    ]);
    const asked: WantedMembers[] = [];
    for (const { roomId, initial } of joined) {
      const members = new Map<string, string>();
      for (const member of needed.get(roomId) ?? none) {
        const eventId =
          current.get(roomId)?.get(stateKeyOf(memberType, member)) ?? claimed.get(claimKey(roomId, member));
        // The id as the event itself holds it: what is remembered should not keep the database's copy.
        if (eventId !== undefined) members.set(member, this.events.peek(eventId)?.event.eventId ?? eventId);
      }
      if (initial || members.size > 0) asked.push({ roomId, wanted: members, anew: initial });
    }
    const lacking = await takeMembers(asked);
    const wanted = new Map<string, StateIds>();
    for (const part of parts) {
      const { roomId } = part;
      const known = (part.section === 'join' ? current : atLeave).get(roomId) ?? new Map<string, string>();
      const changed = deltas.get(roomId) ?? [];
      const ids = await wantedState(part, known, changed, userId);
      if (part.section === 'leave') {
        const sender = stateKeyOf(memberType, part.membership.sender);
        const sentBy = known.get(sender);
        if (part.config.requiredState.isLazy && sentBy !== undefined) ids.set(sender, sentBy);
        ids.set(stateKeyOf(memberType, userId), part.membership.eventId);
      }
      for (const [member, eventId] of lacking.get(roomId) ?? []) ids.set(stateKeyOf(memberType, member), eventId);
      // Whoever moved in a gap, the client may know as they were.
      if (part.config.requiredState.isLazy && !part.initial) {
        for (const { type, stateKey, eventId, prevEventId, streamId } of changed) {
          // Of whom nothing was known until all members were has not moved.
          const isFound = prevEventId === undefined && completed.get(roomId)?.has(streamId) === true;
          if (type === memberType && eventId !== undefined && !isFound) ids.set(stateKeyOf(type, stateKey), eventId);
        }
      }
      wanted.set(roomId, ids);
    }
    const states = new Map([...current, ...atLeave]);
    return { state: this.#load(wanted), summaries: await this.#summaries(parts, states, deltas, userId) };
  }

  /** Where the members of rooms became known, among what changed in them. */
  async #completed(
    parts: readonly RoomPart[],
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
  ): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
    const lazy = parts.filter(({ roomId, config }) => config.requiredState.isLazy && deltas.has(roomId));
    const positions = lazy.flatMap(({ roomId }) => {
      const changed = deltas.get(roomId) ?? [];
      return [changed[0]?.streamId ?? 0, changed.at(-1)?.streamId ?? 0];
    });
    if (positions.length === 0) return new Map();
    return this.partial.completed(
      lazy.map(({ roomId }) => roomId),
      Math.min(...positions) - 1,
      Math.max(...positions),
    );
  }

  /** The parts of current state that anything here is about. */
  async #currentState(
    parts: readonly RoomPart[],
    needed: ReadonlyMap<string, ReadonlySet<string>>,
    userId: string,
  ): Promise<Map<string, StateIds>> {
    if (parts.length === 0) return new Map();
    const isWhole = (part: RoomPart): boolean => part.initial || part.formerState !== undefined;
    const whole = parts.filter(isWhole);
    const roomsOf = (list: readonly RoomPart[]): string[] => list.map((part) => part.roomId);
    // Of those with equal wishes once: what they name, and types of which they want all.
    const groups = [...Map.groupBy(parts, (part) => (isWhole(part) ? part.config.requiredState.key : '')).values()].map(
      (group) => ({ group, types: namedBy(group.filter(isWhole), userId) }),
    );
    const entries = groups.flatMap(({ group, types }) =>
      group.flatMap(({ roomId }) => [
        ...types.flatMap(([type, stateKey]) => (stateKey === undefined ? [] : [[roomId, type, stateKey] as const])),
        ...[...(needed.get(roomId) ?? none)].map((member) => [roomId, memberType, member] as const),
      ]),
    );
    const types = groups.flatMap(({ group, types: named }) => {
      const all = named.filter(([, stateKey]) => stateKey === undefined);
      return all.length > 0 ? [{ group, types: all }] : [];
    });
    const everyType = { group: types.flatMap((one) => one.group), types: types.flatMap((one) => one.types) };
    const everything = whole.filter((part) => part.config.requiredState.breadth === 'all');
    const almost = whole.filter((part) => part.config.requiredState.breadth === 'withoutMembers');
    const states = await Promise.all([
      this.state.currentEntries(entries),
      // Each with what it names itself: one room of which all members are wanted must not make every other room costly.
      ...(types.length > maxGroups ? [everyType] : types).map((one) =>
        this.state.currentIdsOf(roomsOf(one.group), { types: one.types }),
      ),
      almost.length > 0 ? this.state.currentIdsOf(roomsOf(almost), { withoutMembers: true }) : undefined,
      everything.length > 0 ? this.state.currentIdsOf(roomsOf(everything)) : undefined,
    ]);
    const merged = new Map<string, StateIds>();
    for (const rooms of states) {
      for (const [roomId, ids] of rooms ?? []) {
        const before = merged.get(roomId);
        if (before === undefined) merged.set(roomId, ids);
        else for (const [key, eventId] of ids) before.set(key, eventId);
      }
    }
    return merged;
  }

  /** State at the end of the user's last stay; nothing of rooms that the user never was in. */
  async #stateAtLeave(parts: readonly RoomPart[], userId: string): Promise<Map<string, StateIds>> {
    const whole = parts.filter((part) => part.initial);
    if (whole.length === 0) return new Map();
    const ends = await this.history.endsOfStays(
      userId,
      whole.map((part) => part.roomId),
    );
    const broad = whole.some((part) => part.config.requiredState.breadth !== 'named');
    // All that is shown of these rooms is who sent the user away.
    const senders = [...new Set(whole.map((part) => part.membership.sender))];
    const states = await this.state.idsAfter(
      [...ends.values()].map(({ eventId }) => eventId),
      broad
        ? { members: [userId, ...senders] }
        : { types: [...namedBy(whole, userId), ...senders.map((sender) => [memberType, sender] as const)] },
    );
    return new Map([...ends].map(([roomId, { eventId }]) => [roomId, new Map(states.get(eventId) ?? [])] as const));
  }

  async *#load(wanted: ReadonlyMap<string, StateIds>): AsyncGenerator<readonly StoredEvent[]> {
    const isShown = (stored: StoredEvent): boolean =>
      stored.rejectedReason === undefined && (isServable(stored) || stored.outlier);
    for await (const page of this.events.pages(idsOfRooms(wanted))) yield page.filter(isShown);
  }

  async #summaries(
    parts: readonly RoomPart[],
    states: ReadonlyMap<string, StateIds>,
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
    userId: string,
  ): Promise<Map<string, JsonObject>> {
    const changes = (part: RoomPart, type: string): boolean =>
      part.initial || deltas.get(part.roomId)?.some((delta) => delta.type === type) === true;
    const concerned = parts.filter(
      (part) =>
        changes(part, 'm.room.name') ||
        changes(part, 'm.room.avatar') ||
        (part.section === 'join' && changes(part, memberType)),
    );
    if (concerned.length === 0) return new Map();
    const shown = await this.events.many(
      concerned.flatMap((part) => [nameKey, avatarKey].flatMap((key) => states.get(part.roomId)?.get(key) ?? [])),
    );
    const textOf = (roomId: string, stateKey: string, field: string): string | undefined => {
      const value = shown.get(states.get(roomId)?.get(stateKey) ?? '')?.event.content[field];
      return typeof value === 'string' && value !== '' ? value : undefined;
    };
    const joined = concerned.filter((part) => part.section === 'join');
    const nameless = joined.filter((part) => textOf(part.roomId, nameKey, 'name') === undefined);
    const [counts, heroes] = await Promise.all([
      this.memberships.counts(joined.map((part) => part.roomId)),
      this.#heroes(
        nameless.map((part) => part.roomId),
        userId,
      ),
    ]);
    return new Map(
      concerned.map((part) => {
        const { roomId } = part;
        const name = textOf(roomId, nameKey, 'name');
        const avatar = textOf(roomId, avatarKey, 'url');
        const count = counts.get(roomId);
        const summary: JsonObject = {};
        if (name !== undefined) summary['name'] = name;
        // `null` takes away what the client has.
        if (avatar !== undefined) summary['avatar'] = avatar;
        else if (!part.initial && changes(part, 'm.room.avatar')) summary['avatar'] = null;
        if (part.section === 'join' && name === undefined) summary['heroes'] = heroes.get(roomId) ?? [];
        if (count !== undefined && changes(part, memberType)) {
          summary['joined_count'] = count.joined;
          summary['invited_count'] = count.invited;
        }
        return [roomId, summary] as const;
      }),
    );
  }

  /** The members by which rooms without a name are called, with what they are called themselves. */
  async #heroes(roomIds: readonly string[], userId: string): Promise<Map<string, JsonObject[]>> {
    const heroes = await this.heroes.of(roomIds, userId);
    const members = await this.state.currentEntries(
      [...heroes].flatMap(([roomId, named]) => named.map((member) => [roomId, memberType, member] as const)),
    );
    const ids = new Map(
      [...heroes].map(([roomId, named]) => [
        roomId,
        named.map((member) => [member, members.get(roomId)?.get(stateKeyOf(memberType, member)) ?? ''] as const),
      ]),
    );
    const loaded = await this.events.many([...ids.values()].flatMap((list) => list.map(([, eventId]) => eventId)));
    return new Map(
      [...ids].map(([roomId, list]) => [
        roomId,
        list.map(([member, eventId]) => {
          const { displayname, avatar_url: avatarUrl } = loaded.get(eventId)?.event.content ?? {};
          return {
            user_id: member,
            ...(typeof displayname === 'string' ? { displayname } : {}),
            ...(typeof avatarUrl === 'string' ? { avatar_url: avatarUrl } : {}),
          };
        }),
      ]),
    );
  }
}

const none: ReadonlySet<string> = new Set();

/** Senders of events, and those whose membership events are about. */
function membersOf(timeline: readonly StoredEvent[] | undefined): ReadonlySet<string> {
  const members = new Set<string>();
  for (const { event } of timeline ?? []) {
    members.add(event.sender);
    if (event.type === memberType && event.stateKey !== undefined) members.add(event.stateKey);
  }
  return members;
}

/** What the rooms' configurations name, and what summaries are made of. */
function namedBy(parts: readonly RoomPart[], userId: string): (readonly [type: string, stateKey?: string])[] {
  const configs = new Map(parts.map(({ config }) => [config.requiredState.key, config.requiredState]));
  return [
    ['m.room.name', ''],
    ['m.room.avatar', ''],
    [memberType, userId],
    ...[...configs.values()].flatMap((state) => state.named(userId)),
  ];
}

/** State that is wanted of a room: all of it at first, then what changed and what is wanted newly. */
async function wantedState(
  part: RoomPart,
  known: StateIds,
  deltas: readonly StateDelta[],
  userId: string,
): Promise<StateIds> {
  const ids: StateIds = new Map();
  const { requiredState } = part.config;
  if (part.initial || part.formerState !== undefined) {
    let count = 0;
    for (const [key, eventId] of known) {
      if (++count % entriesPerTurn === 0) await ownTurn();
      const [type, stateKey] = splitStateKey(key);
      if (!requiredState.matches(type, stateKey, userId)) continue;
      if (part.formerState?.matches(type, stateKey, userId) !== true) ids.set(key, eventId);
    }
  }
  if (part.initial) return ids;
  for (const delta of deltas) {
    if (delta.eventId === undefined || !requiredState.matches(delta.type, delta.stateKey, userId)) continue;
    ids.set(stateKeyOf(delta.type, delta.stateKey), delta.eventId);
  }
  return ids;
}
