import { Injectable } from '@nestjs/common';
import { passesFilter, passesRoom } from '@rookery/matrix-types';
import { EventStore, isServable, PartialRooms, RoomStateReader, type StoredEvent } from '@rookery/rooms';
import { splitStateKey, stateKeyOf } from '@rookery/state-res';
import type { WantedMembers } from '../request/device-members.js';
import type { SyncContext } from '../sync-context.js';
import { changedState } from './changed-state.js';
import { claimedMembers, claimKey } from './claimed-members.js';
import type { RoomEntry } from './room-list.js';
import type { ShownTimeline } from './timeline.js';
import type { CurrentStates, StateDelta } from '../model/rooms.js';
import { idsOfRooms, StateIds } from './state-ids.js';

const memberType = 'm.room.member';
/** What the keys of members begin with, and no others. */
const memberKeys = stateKeyOf(memberType, '');

/** What the state of rooms has to go with. */
export interface StateNeeds {
  /** As the client is shown them. */
  readonly timelines: ReadonlyMap<string, ShownTimeline>;
  readonly deltas: ReadonlyMap<string, readonly StateDelta[]>;
  /** Members by which rooms are called in this answer. */
  readonly heroes: ReadonlyMap<string, readonly string[]>;
  readonly current: CurrentStates;
}

/** The state that goes with timelines. */
@Injectable()
export class RoomStates {
  constructor(
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    private readonly partial: PartialRooms,
  ) {}

  /** Changes of current state since the last sync, by room; for rooms that are not fresh. */
  async deltas(entries: readonly RoomEntry[], context: SyncContext): Promise<Map<string, StateDelta[]>> {
    if (context.since === undefined) return new Map();
    const stayed = entries.filter((entry) => !entry.fresh && (entry.section === 'join' || entry.stay !== undefined));
    if (stayed.length === 0) return new Map();
    const deltas = await this.state.deltas(
      stayed.map((entry) => entry.roomId),
      context.since.events,
      context.now.events,
    );
    // Members of whom nothing was known until then are no news: who needs them lazily gets them with what they say.
    const completed = context.filter.room.state.lazyLoadMembers
      ? await this.partial.completed(
          stayed.map((entry) => entry.roomId),
          context.since.events,
          context.now.events,
        )
      : new Map<string, ReadonlySet<number>>();
    const isNews = ({ roomId, streamId, type, prevEventId }: StateDelta): boolean =>
      type !== memberType || prevEventId !== undefined || completed.get(roomId)?.has(streamId) !== true;
    const upTo = new Map(stayed.map((entry) => [entry.roomId, entry.upTo]));
    return Map.groupBy(
      deltas.filter((delta) => isNews(delta) && delta.streamId <= (upTo.get(delta.roomId) ?? 0)),
      (delta) => delta.roomId,
    );
  }

  /** Current state of the joined rooms of which all is told. One query. */
  async current(entries: readonly RoomEntry[], { filter, fullState }: SyncContext): Promise<CurrentStates> {
    const whole = entries.filter(
      ({ section, fresh, roomId }) =>
        section === 'join' && (fresh || fullState) && passesRoom(filter.room.state, roomId),
    );
    if (whole.length === 0) return new Map();
    const roomIds = whole.map(({ roomId }) => roomId);
    const { lazyLoadMembers } = filter.room.state;
    const states = await this.state.currentIdsOf(roomIds, lazyLoadMembers ? { withoutMembers: true } : undefined);
    return new Map(roomIds.map((roomId) => [roomId, states.get(roomId) ?? new Map<string, string>()]));
  }

  /**
   * The state events of all rooms, in no order, a page at a time.
   * @spec client-server-api#get_matrixclientv3sync
   */
  async *pages(
    entries: readonly RoomEntry[],
    needs: StateNeeds,
    context: SyncContext,
  ): AsyncGenerator<readonly StoredEvent[]> {
    const filter = context.filter.room.state;
    const rooms = entries.filter(
      (entry) => (entry.section === 'join' || entry.section === 'leave') && passesRoom(filter, entry.roomId),
    );
    const shown = new Map(
      rooms.map(({ roomId }) => [roomId, (needs.timelines.get(roomId)?.events ?? []).map(({ stored }) => stored)]),
    );
    const whole = rooms.filter((entry) => entry.fresh || context.fullState);
    const full = await this.#wholeState(whole, shown, needs.current, context);
    const result = new Map<string, StateIds>();
    for (const { roomId, section, membership, stay } of rooms) {
      const state = full.get(roomId);
      const timeline = shown.get(roomId) ?? [];
      // What was changed behind the back of those who had gone is not for them, although they are shown how they were let go.
      const deltas = needs.deltas.get(roomId)?.filter((delta) => delta.streamId <= (stay?.streamOrdering ?? Infinity));
      const ids = state ?? new StateIds(changedState(deltas ?? [], timeline, context.useStateAfter !== false));
      if (state !== undefined && !context.useStateAfter) setBack(ids, timeline);
      // How the user came to be outside may have happened after the stay.
      if (section === 'leave' && context.useStateAfter)
        ids.set(stateKeyOf(memberType, context.userId), membership.eventId);
      result.set(roomId, ids);
    }
    if (filter.lazyLoadMembers) await this.#lazyLoad(rooms, result, shown, needs, context);
    yield* this.#load(
      result,
      new Set(rooms.flatMap((entry) => (entry.section === 'leave' ? [entry.roomId] : []))),
      context,
    );
  }

  /** State at the end of each range: current state, or state at the end of the user's stay. */
  async #wholeState(
    entries: readonly RoomEntry[],
    shown: ReadonlyMap<string, readonly StoredEvent[]>,
    current: CurrentStates,
    context: SyncContext,
  ): Promise<Map<string, StateIds>> {
    const lazy = context.filter.room.state.lazyLoadMembers;
    const left = entries.filter((entry) => entry.stay !== undefined);
    const states = new Map<string, StateIds>();
    for (const { roomId, section } of entries)
      if (section === 'join') states.set(roomId, new StateIds(current.get(roomId)));
    if (left.length > 0) {
      const after = await this.state.idsAfter(
        left.map((entry) => entry.stay?.eventId ?? ''),
        lazy ? { members: [...sendersOf(left, shown), context.userId] } : undefined,
      );
      for (const entry of left) states.set(entry.roomId, new StateIds(after.get(entry.stay?.eventId ?? '')));
    }
    return states;
  }

  /**
   * Leaves of the members those whom the client needs: who speaks in the timelines, whom rooms are called by, itself, and
   * every one whose membership changed since the last sync without the timeline telling it. Of a room that was left since, who
   * speaks there is added to what changed.
   * @spec client-server-api#lazy-loading-room-members
   */
  async #lazyLoad(
    entries: readonly RoomEntry[],
    result: ReadonlyMap<string, StateIds>,
    shown: ReadonlyMap<string, readonly StoredEvent[]>,
    { deltas, heroes }: StateNeeds,
    context: SyncContext,
  ): Promise<void> {
    const joined = entries.filter((entry) => entry.section === 'join');
    const neededIn = new Map(
      joined.map(({ roomId, fresh }) => {
        const timeline = shown.get(roomId) ?? [];
        const needed = new Set([...timeline.map((stored) => stored.event.sender), ...(heroes.get(roomId) ?? [])]);
        if (fresh || context.fullState) needed.add(context.userId);
        return [roomId, needed] as const;
      }),
    );
    const members = await this.state.currentEntries(
      [...neededIn].flatMap(([roomId, needed]) => [...needed].map((userId) => [roomId, memberType, userId] as const)),
    );
    const claimed = await claimedMembers(
      this.partial,
      this.events,
      joined.flatMap(({ roomId }) => shown.get(roomId) ?? []),
    );
    const asked: (WantedMembers & { readonly ids: StateIds })[] = [];
    for (const { roomId, fresh } of joined) {
      const ids = result.get(roomId);
      if (ids === undefined) continue;
      const isWhole = fresh || context.fullState;
      const inTimeline = new Set((shown.get(roomId) ?? []).map((stored) => stored.event.eventId));
      const wanted = new Map<string, string>();
      for (const userId of neededIn.get(roomId)!) {
        const key = stateKeyOf(memberType, userId);
        const eventId = ids.get(key) ?? members.get(roomId)?.get(key) ?? claimed.get(claimKey(roomId, userId));
        if (eventId === undefined || (inTimeline.has(eventId) && !context.useStateAfter)) continue;
        // The id as the event itself holds it: what is remembered per device should not keep the database's copy.
        wanted.set(userId, this.events.peek(eventId)?.event.eventId ?? eventId);
      }
      asked.push({ roomId, ids, wanted, anew: isWhole });
    }
    const ended = await this.#lastSpeakers(entries, result, shown, context);
    const taken = await context.lazyMembers?.take([...asked, ...ended], context.now.events);
    const fresherOf = ({ roomId, wanted }: WantedMembers): WantedMembers['wanted'] =>
      taken === undefined ? wanted : (taken.get(roomId) ?? new Map<string, string>());
    for (const each of ended)
      for (const [userId, eventId] of fresherOf(each)) each.ids.set(stateKeyOf(memberType, userId), eventId);
    for (const each of asked) {
      const { roomId, ids } = each;
      // What changed is told however often the client was sent it before: it cannot know which of it still holds.
      const changed = changedState(deltas.get(roomId) ?? [], shown.get(roomId) ?? [], context.useStateAfter !== false);
      ids.leaveOut((key) => key.startsWith(memberKeys));
      for (const [userId, eventId] of fresherOf(each)) ids.set(stateKeyOf(memberType, userId), eventId);
      for (const [key, eventId] of changed) if (key.startsWith(memberKeys)) ids.set(key, eventId);
    }
  }

  /** Who speaks in the timelines of rooms that the user has left since the last sync, and neither these nor the state tell of. */
  async #lastSpeakers(
    entries: readonly RoomEntry[],
    result: ReadonlyMap<string, StateIds>,
    shown: ReadonlyMap<string, readonly StoredEvent[]>,
    context: SyncContext,
  ): Promise<(WantedMembers & { readonly ids: StateIds })[]> {
    // Where all state is told, they are in it.
    const left = entries.filter(({ fresh, stay }) => stay !== undefined && !fresh && !context.fullState);
    if (left.length === 0) return [];
    const after = await this.state.idsAfter(
      left.map(({ stay }) => stay?.eventId ?? ''),
      { types: [...sendersOf(left, shown)].map((userId) => [memberType, userId] as const) },
    );
    return left.flatMap(({ roomId, stay }) => {
      const ids = result.get(roomId);
      if (ids === undefined) return [];
      const timeline = shown.get(roomId) ?? [];
      const inTimeline = new Set(timeline.map((stored) => stored.event.eventId));
      const wanted = new Map<string, string>();
      for (const { event } of timeline) {
        const key = stateKeyOf(memberType, event.sender);
        const eventId = after.get(stay?.eventId ?? '')?.get(key);
        if (eventId === undefined || ids.get(key) !== undefined) continue;
        if (context.useStateAfter || !inTimeline.has(eventId)) wanted.set(event.sender, eventId);
      }
      return [{ roomId, ids, wanted, anew: false }];
    });
  }

  async *#load(
    states: ReadonlyMap<string, StateIds>,
    left: ReadonlySet<string>,
    context: SyncContext,
  ): AsyncGenerator<readonly StoredEvent[]> {
    // Of whom state resolution took the membership, no event says so; the last one would say that the user is in the room.
    const isUndone = ({ event }: StoredEvent): boolean =>
      context.useStateAfter !== false &&
      left.has(event.roomId) &&
      event.type === memberType &&
      event.stateKey === context.userId &&
      event.content['membership'] === 'join';
    const filter = context.filter.room.state;
    if (filter.types !== undefined || filter.notTypes.length > 0)
      for (const ids of states.values()) ids.leaveOut((key) => !filter.passesType(splitStateKey(key)[0]));
    const isShown = (stored: StoredEvent): boolean =>
      stored.rejectedReason === undefined &&
      !isUndone(stored) &&
      (isServable(stored) || stored.outlier) &&
      passesFilter(filter, stored.event);
    for await (const page of this.events.pages(idsOfRooms(states))) yield page.filter(isShown);
  }
}

function sendersOf(entries: readonly RoomEntry[], shown: ReadonlyMap<string, readonly StoredEvent[]>): Set<string> {
  return new Set(entries.flatMap((entry) => (shown.get(entry.roomId) ?? []).map((stored) => stored.event.sender)));
}

/** Takes the timeline's own changes back, so that a client which applies the timeline on top ends at current state. */
function setBack(ids: StateIds, timeline: readonly StoredEvent[]): void {
  if (!timeline.some(({ event }) => event.stateKey !== undefined)) return;
  const inTimeline = new Set(timeline.map((stored) => stored.event.eventId));
  const seen = new Set<string>();
  for (const { event, replacesState } of timeline) {
    if (event.stateKey === undefined) continue;
    const key = stateKeyOf(event.type, event.stateKey);
    if (seen.has(key)) continue;
    seen.add(key);
    const current = ids.get(key);
    // Where resolution chose an event that is not in the timeline, the client must be told which.
    if (current === undefined || !inTimeline.has(current)) continue;
    if (replacesState === undefined) ids.delete(key);
    else ids.set(key, replacesState);
  }
}
