import { Injectable } from '@nestjs/common';
import { prejoinStateOf } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eachLimit } from '@rookery/platform';
import { PushCounts, totalOf } from '@rookery/push';
import {
  EventSerializer,
  EventStore,
  formatRoomToken,
  RoomStateReader,
  type StoredEvent,
  TimelineReader,
  VisibilityFilter,
  type VisibleEvent,
} from '@rookery/rooms';
import { byRoom, StateLists, type WrittenEvents } from '../sections/written-events.js';
import { RoomDetailsReader } from './room-details.js';
import type { RoomPart } from './room-plan.js';
import type { TakeMembers } from '../request/device-members.js';
import type { StateDelta, TimelineSlice } from '../model/rooms.js';
import { behind, visibleEnds } from '../model/visible-ends.js';

/** For whom, and between which positions of the events, rooms are written. */
export interface AnswerContext {
  readonly userId: string;
  readonly deviceId: string | undefined;
  /** Absent in a connection's first request. */
  readonly since: number | undefined;
  readonly now: number;
  /** Members that go with timelines. */
  readonly takeMembers: TakeMembers;
}

/** The part `rooms` of an answer. */
export interface RoomAnswers {
  /** In the order of the parts; rooms with nothing to tell are absent. */
  readonly rooms: ReadonlyMap<string, JsonObject>;
  /** Ids of the events in each timeline. */
  readonly timelines: ReadonlyMap<string, ReadonlySet<string>>;
}

const parallelReads = 4;
/** Rooms whose parts are held at a time. */
const roomsAtOnce = 100;

/** Writes rooms, many at once. */
@Injectable()
export class RoomAnswerWriter {
  constructor(
    private readonly timelines: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly details: RoomDetailsReader,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    private readonly counts: PushCounts,
  ) {}

  /**
   * The rooms of an answer, with the same number of queries for each hundred: what a room is made from need not be kept until
   * the last of a thousand is there.
   */
  async write(parts: readonly RoomPart[], context: AnswerContext): Promise<RoomAnswers> {
    const written: RoomAnswers[] = [];
    for (let start = 0; start < parts.length; start += roomsAtOnce)
      written.push(await this.#write(parts.slice(start, start + roomsAtOnce), context));
    return {
      rooms: new Map(written.flatMap(({ rooms }) => [...rooms])),
      timelines: new Map(written.flatMap(({ timelines }) => [...timelines])),
    };
  }

  async #write(parts: readonly RoomPart[], context: AnswerContext): Promise<RoomAnswers> {
    const { userId, deviceId } = context;
    const joined = parts.filter((part) => part.section === 'join');
    const members = await this.events.many(
      parts.filter((part) => part.section !== 'join').map((part) => part.membership.eventId),
    );
    const [{ slices, visible: shownOf }, deltas, counts] = await Promise.all([
      visibleEnds(joined, {
        limitOf: ({ config }) => config.timelineLimit,
        slices: (some, sizeOf) => this.#slices(some, context.now, sizeOf),
        visible: (events) => this.visibility.visible(userId, events),
        placeBefore: (event) => this.timelines.arrivalOf(event),
      }),
      this.#deltas(joined, context.now),
      this.counts.read(
        userId,
        joined.map((part) => part.roomId),
      ),
    ]);
    for (const part of parts) {
      const member = part.section === 'leave' ? members.get(part.membership.eventId) : undefined;
      // A membership that state resolution took away ended without an event.
      if (member === undefined || member.event.content['membership'] !== part.membership.membership) continue;
      // All that is shown of a room after the user went: how it came about.
      shownOf.set(part.roomId, [{ stored: member, membership: part.membership.membership }]);
      slices.set(part.roomId, {
        events: [member],
        limited: true,
        start: member.outlier ? undefined : this.timelines.placeOf(member, 'before'),
      });
    }
    const visible = [...shownOf.values()].flat();
    const stored = new Map([...shownOf].map(([roomId, events]) => [roomId, events.map((event) => event.stored)]));
    const present = parts.filter((part) => part.section === 'join' || part.section === 'leave');
    const details = await this.details.read(present, stored, deltas, userId, context.takeMembers);
    const reader = { userId, deviceId };
    const [timeline, stateByRoom] = await Promise.all([
      this.serializer.serialize(reader, visible, { withoutRoomId: true }),
      this.#state({ userId, deviceId }, details.state),
    ]);
    const timelineByRoom = byRoom(visible, timeline);
    const rooms = new Map<string, JsonObject>();
    for (const part of parts) {
      const { roomId, section } = part;
      const count = totalOf(counts.get(roomId) ?? new Map());
      const common: JsonObject = {
        ...(part.initial ? { initial: true } : {}),
        notification_count: count.notify,
        highlight_count: count.highlight,
        ...(part.listed ? { bump_stamp: part.listed.activity } : {}),
        ...(part.listed?.isDm === true ? { is_dm: true } : {}),
        // No event says so.
        ...(section === 'leave' && !slices.has(roomId) ? { membership: part.membership.membership } : {}),
      };
      if (section === 'invite' || section === 'knock') {
        rooms.set(roomId, { ...common, invite_state: inviteState(members.get(part.membership.eventId)) });
        continue;
      }
      const slice = slices.get(roomId);
      const summary = details.summaries.get(roomId);
      const shown = timelineByRoom.get(roomId) ?? [];
      const required = stateByRoom.get(roomId) ?? [];
      // A gap is told, also where all that would be shown behind it is hidden.
      const isWorth = part.initial || part.expanded || part.always || summary !== undefined || slice?.limited === true;
      if (!isWorth && shown.length === 0 && required.length === 0) continue;
      const hasTimeline = part.initial || part.expanded || shown.length > 0 || slice?.limited === true;
      rooms.set(roomId, {
        ...common,
        ...summary,
        ...(part.expanded ? { unstable_expanded_timeline: true } : {}),
        required_state: required,
        timeline: shown,
        ...(hasTimeline ? timelineFacts(slice, shownOf.get(roomId) ?? [], context) : {}),
      });
    }
    return {
      rooms,
      timelines: new Map(
        [...stored].map(([roomId, events]) => [roomId, new Set(events.map((each) => each.event.eventId))]),
      ),
    };
  }

  async #state(
    reader: { readonly userId: string; readonly deviceId: string | undefined },
    pages: AsyncIterable<readonly StoredEvent[]>,
  ): Promise<WrittenEvents> {
    const options = { withoutRoomId: true, withoutAggregations: true };
    const state = new StateLists(true);
    for await (const page of pages) {
      const visible = page.map((stored) => ({ stored, membership: undefined }));
      state.add(byRoom(visible, await this.serializer.serialize(reader, visible, options)));
    }
    return state.lists;
  }

  /**
   * Timelines of joined rooms. Rooms that are read from the same place and of the same length share a query; those that
   * were passed over earlier are read from where the first of them stands.
   * @param sizeOf how many events are read of a room of which so many are shown
   */
  async #slices(
    parts: readonly RoomPart[],
    upTo: number,
    sizeOf: (limit: number) => number,
  ): Promise<Map<string, TimelineSlice>> {
    const groups = [
      ...Map.groupBy(parts, (part) => {
        const isWhole = part.initial || part.expanded;
        return `${isWhole ? 'whole' : part.memory?.sentUpTo === undefined ? 'live' : 'late'} ${part.config.timelineLimit}`;
      }).values(),
    ];
    const found = new Map<string, TimelineSlice>();
    await eachLimit(groups, parallelReads, async (group) => {
      const limit = sizeOf(group[0]?.config.timelineLimit ?? 0);
      const starts = new Map(group.map((part) => [part.roomId, part.initial || part.expanded ? 0 : part.after]));
      const slices = await this.timelines.latest([...starts.keys()], {
        after: Math.min(...starts.values()),
        upTo,
        // One more, to see whether the room that begins later than others has more than the limit.
        limit: limit + 1,
      });
      for (const [roomId, slice] of slices) found.set(roomId, this.#cut(slice, starts.get(roomId) ?? 0, limit));
    });
    return found;
  }

  #cut(slice: TimelineSlice, after: number, limit: number): TimelineSlice {
    const news = slice.events.filter((stored) => stored.streamOrdering > after);
    const events = limit > 0 ? news.slice(-limit) : [];
    const [first] = events;
    return {
      events,
      // Where everything that was read is news, what cut the reading short lies among the news as well: a gap.
      limited: news.length > events.length || (slice.limited && news.length === slice.events.length),
      start: first === undefined ? behind(slice) : this.timelines.arrivalOf(first),
    };
  }

  async #deltas(parts: readonly RoomPart[], upTo: number): Promise<Map<string, StateDelta[]>> {
    const following = parts.filter((part) => !part.initial);
    const after = new Map(following.map((part) => [part.roomId, part.after]));
    if (after.size === 0) return new Map();
    const deltas = await this.state.deltas([...after.keys()], Math.min(...after.values()), upTo);
    return Map.groupBy(
      deltas.filter((delta) => delta.streamId > (after.get(delta.roomId) ?? 0)),
      (delta) => delta.roomId,
    );
  }
}

function timelineFacts(
  slice: TimelineSlice | undefined,
  shown: readonly VisibleEvent[],
  { since, now }: AnswerContext,
): JsonObject {
  return {
    limited: slice?.limited ?? false,
    prev_batch: formatRoomToken(slice?.start ?? { topological: undefined, stream: now }),
    num_live: since === undefined ? 0 : shown.filter(({ stored }) => stored.streamOrdering > since).length,
  };
}

/** The state that came with an invite or a knock, and the member event itself. */
function inviteState(stored: StoredEvent | undefined): JsonObject[] {
  if (stored === undefined) return [];
  const { type, stateKey, sender, content } = stored.event;
  return [...prejoinStateOf(stored.event), { type, state_key: stateKey ?? '', sender, content }];
}
