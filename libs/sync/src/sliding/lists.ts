import type { JsonObject } from '@rookery/matrix-types';
import type { CurrentMembership } from '../sections/room-list.js';
import { RequiredState } from './required-state.js';
import type { ListFilters, RoomConfig, SlidingList, SlidingRequest } from './request.js';

/** What a user is to a room. */
export type RoomSection = 'join' | 'invite' | 'knock' | 'leave';

/** A room as lists see it. */
export interface ListedRoom {
  readonly roomId: string;
  readonly section: RoomSection;
  /** The user's member event. */
  readonly membership: CurrentMembership;
  /** Position of what happened last; lists are sorted by it, the latest first. */
  readonly activity: number;
  readonly roomType: string | undefined;
  readonly name: string | undefined;
  readonly isEncrypted: boolean;
  readonly isDm: boolean;
}

/** What filters need beside the rooms themselves. */
export interface FilterFacts {
  /** Rooms that the spaces of this filter name. */
  readonly inSpaces: ReadonlySet<string>;
  readonly tags: ReadonlyMap<string, ReadonlySet<string>>;
}

/** The latest first; ties by id, so that the order is the same every time. */
export function sortRooms(rooms: readonly ListedRoom[]): ListedRoom[] {
  return rooms.toSorted((a, b) => b.activity - a.activity || (a.roomId < b.roomId ? -1 : 1));
}

/** The rooms that fulfil every condition, in the order given. */
export function filterRooms(rooms: readonly ListedRoom[], filters: ListFilters, facts: FilterFacts): ListedRoom[] {
  const { isDm, isEncrypted, isInvite, spaces, roomTypes, notRoomTypes, nameLike, tags, notTags } = filters;
  const hasTag = (roomId: string, wanted: readonly string[]): boolean => {
    const own = facts.tags.get(roomId);
    return own !== undefined && wanted.some((tag) => own.has(tag));
  };
  return rooms.filter(
    (room) =>
      (isDm === undefined || room.isDm === isDm) &&
      (isEncrypted === undefined || room.isEncrypted === isEncrypted) &&
      (isInvite === undefined || (room.section === 'invite') === isInvite) &&
      (spaces === undefined || facts.inSpaces.has(room.roomId)) &&
      notRoomTypes?.has(room.roomType) !== true &&
      (roomTypes === undefined || roomTypes.has(room.roomType)) &&
      (nameLike === undefined || room.name?.toLowerCase().includes(nameLike) === true) &&
      (notTags === undefined || !hasTag(room.roomId, notTags)) &&
      (tags === undefined || hasTag(room.roomId, tags)),
  );
}

/** Ids in the windows of one answer: ranges of many lists may overlap, and each names its rooms. */
const maxIds = 100_000;

/**
 * The part `lists` of an answer for one list, and the rooms in its window.
 * @param limit rooms that may be named, over all ranges
 */
function windowOf(
  rooms: readonly ListedRoom[],
  list: SlidingList,
  limit: number,
): { readonly answer: JsonObject; readonly shown: readonly ListedRoom[]; readonly named: number } {
  const ranges = list.ranges ?? (rooms.length > 0 ? [[0, rooms.length - 1] as const] : []);
  const shown = new Set<ListedRoom>();
  let left = limit;
  const ops = ranges.map(([start, end]) => {
    const inRange = rooms.slice(start, Math.min(end + 1, start + left));
    left -= inRange.length;
    for (const room of inRange) shown.add(room);
    return { op: 'SYNC', range: [start, end], room_ids: inRange.map((room) => room.roomId) };
  });
  return { answer: { count: rooms.length, ops }, shown: [...shown], named: limit - left };
}

/** Which rooms an answer is about, and why. */
export interface Selection {
  /** In the order of activity, with what is wanted of each. */
  readonly rooms: ReadonlyMap<ListedRoom, RoomConfig>;
  /** Ids of the rooms in the window of each list. */
  readonly byList: ReadonlyMap<string, readonly string[]>;
  /** The part `lists` of the answer. */
  readonly lists: JsonObject;
  /** Whether a room is in any list, in its window or not, or subscribed to. */
  isOfInterest(roomId: string): boolean;
}

/**
 * Chooses the rooms of every list and subscription. A room that several of them hold gets the longest timeline and all the
 * state that any of them wants.
 * @param sorted as {@link sortRooms} gives them
 * @param isPartial whether not all members of a room are known yet: who wants to have them all does not get the room until then
 */
export function selectRooms(
  sorted: readonly ListedRoom[],
  request: SlidingRequest,
  factsOf: (list: SlidingList) => FilterFacts,
  isPartial: (roomId: string) => boolean = () => false,
): Selection {
  const isThere = ({ roomId, section }: ListedRoom, { requiredState }: RoomConfig): boolean =>
    !requiredState.takesAllMembers || section !== 'join' || !isPartial(roomId);
  const configsOf = new Map<ListedRoom, RoomConfig[]>();
  const add = (room: ListedRoom, config: RoomConfig): void => {
    const list = configsOf.get(room);
    if (list) list.push(config);
    else configsOf.set(room, [config]);
  };
  const lists: JsonObject = {};
  let ids = 0;
  const byList = new Map<string, readonly string[]>();
  const whole: (readonly ListedRoom[])[] = [];
  for (const [name, list] of request.lists) {
    const there = list.config.requiredState.takesAllMembers
      ? sorted.filter((room) => isThere(room, list.config))
      : sorted;
    const filtered = list.filters ? filterRooms(there, list.filters, factsOf(list)) : there;
    const { answer, shown, named } = windowOf(filtered, list, maxIds - ids);
    ids += named;
    whole.push(filtered);
    lists[name] = answer;
    byList.set(
      name,
      shown.map((room) => room.roomId),
    );
    for (const room of shown) add(room, list.config);
  }
  if (request.subscriptions.size > 0) {
    for (const room of sorted) {
      const config = request.subscriptions.get(room.roomId);
      if (config && isThere(room, config)) add(room, config);
    }
  }
  const combine = combiner();
  const rooms = new Map<ListedRoom, RoomConfig>();
  for (const room of sorted) {
    const configs = configsOf.get(room);
    if (configs) rooms.set(room, combine(configs));
  }
  let interesting: Set<string> | undefined;
  const isOfInterest = (roomId: string): boolean => {
    interesting ??= new Set([...whole.flat().map((room) => room.roomId), ...request.subscriptions.keys()]);
    return interesting.has(roomId);
  };
  return { rooms, byList, lists, isOfInterest };
}

/** Combines what is wanted of a room. Most rooms are in the same lists as others, so each combination is made once. */
function combiner(): (configs: readonly RoomConfig[]) => RoomConfig {
  const numbers = new Map<RoomConfig, number>();
  const made = new Map<string, RoomConfig>();
  return (configs) => {
    const [first, ...others] = configs;
    if (first === undefined) return { timelineLimit: 0, requiredState: RequiredState.of([]) };
    if (others.length === 0) return first;
    const key = configs
      .map((config) => {
        if (!numbers.has(config)) numbers.set(config, numbers.size);
        return numbers.get(config);
      })
      .join();
    let combined = made.get(key);
    if (combined === undefined) {
      combined = {
        timelineLimit: Math.max(...configs.map((config) => config.timelineLimit)),
        requiredState: others.reduce((state, config) => state.or(config.requiredState), first.requiredState),
      };
      made.set(key, combined);
    }
    return combined;
  };
}
