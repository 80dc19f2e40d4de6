import type {
  MembershipHistory,
  MembershipReader,
  RoomFactsReader,
  RoomStateReader,
  TimelineReader,
} from '@rookery/rooms';

/** The values of what a reader of rooms answers by room. */
type ValueOf<Answer> = Answer extends Promise<Map<string, infer Value>> ? Value : never;

/** A change of a room's state. */
export type StateDelta = Awaited<ReturnType<RoomStateReader['deltas']>>[number];
/** Events of a room in a row, and where they begin. */
export type TimelineSlice = ValueOf<ReturnType<TimelineReader['latest']>>;
/** By what rooms are sorted and filtered. */
export type RoomFacts = ValueOf<ReturnType<RoomFactsReader['of']>>;
/** What a user is in a room now. */
export type RoomMembership = Awaited<ReturnType<MembershipReader['roomsOf']>>[number];
/** A step of a user in a room. */
export type MembershipChange = Awaited<ReturnType<MembershipReader['changesOf']>>[number];
/** The event that ended a user's stay in a room. */
export type StayEnd = NonNullable<Awaited<ReturnType<MembershipHistory['lastLeave']>>>;
/** Which part of a room's state is wanted. */
export type StateFilter = NonNullable<Parameters<RoomStateReader['currentIds']>[1]>;

/**
 * What holds now in the rooms of which all is told: ids by state key, by room, without members where these are loaded lazily.
 * Read once for all that goes by it; a room that the filter keeps state of from the client is absent.
 */
export type CurrentStates = ReadonlyMap<string, ReadonlyMap<string, string>>;
