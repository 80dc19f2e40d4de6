import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import {
  EventSerializer,
  EventStore,
  formatRoomToken,
  prejoinStateOf,
  type StoredEvent,
  type TimelineSlice,
  type VisibleEvent,
  VisibilityFilter,
} from '@rookery/rooms';
import { PushCounts, type RoomCounts, totalOf, type UnreadCount } from '@rookery/push';
import { AccountDataService } from '@rookery/users';
import { compileEventFields } from '../request/event-fields.js';
import { formatSyncToken } from '../request/sync-token.js';
import type { SyncContext } from '../sync-context.js';
import { AccountDataSection, type AccountDataNews } from './account-data.js';
import { type RoomEntry, RoomList } from './room-list.js';
import { RoomStates } from './state.js';
import { RoomSummaries } from './summary.js';
import { Timelines } from './timeline.js';

/** The part `rooms` of an answer: by section, by room. */
export type RoomsAnswer = Partial<Record<'join' | 'invite' | 'knock' | 'leave', Record<string, JsonObject>>>;

/** Events of many rooms, written for one client. */
type Written = ReadonlyMap<string, readonly JsonObject[]>;

/** The rooms of a sync. */
@Injectable()
export class RoomsSection {
  readonly #timelineLimit: number | undefined;
  readonly #excluded: ReadonlySet<string>;

  constructor(
    private readonly list: RoomList,
    private readonly timelines: Timelines,
    private readonly states: RoomStates,
    private readonly summaries: RoomSummaries,
    private readonly roomAccountData: AccountDataSection,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly events: EventStore,
    private readonly accountData: AccountDataService,
    private readonly pushCounts: PushCounts,
    config: Config,
  ) {
    const limit = config.get('filter_timeline_limit');
    this.#timelineLimit = limit < 0 ? undefined : limit;
    this.#excluded = new Set(config.get('exclude_rooms_from_sync'));
  }

  /** A device begins anew. */
  forgetDevice(deviceKey: string): void {
    this.states.forgetDevice(deviceKey);
  }

  /** @param accountData what changed of account data, in rooms as well */
  async build(context: SyncContext, accountData: AccountDataNews): Promise<RoomsAnswer> {
    const listed = await this.list.entries(context, accountData.byRoom.keys());
    const entries = listed.filter((entry) => !this.#excluded.has(entry.roomId));
    if (entries.length === 0) return {};
    const shown = await this.#withoutIgnoredInvites(entries, context);
    const [slices, deltas] = await Promise.all([
      this.timelines.read(shown, context, this.#timelineLimit),
      this.states.deltas(shown, context),
    ]);
    const joined = shown.filter((entry) => entry.section === 'join').map((entry) => entry.roomId);
    const [timeline, state, summaries, data, prejoin, unread] = await Promise.all([
      this.#writeTimelines(shown, slices, context),
      this.states.read(shown, slices, deltas, context).then((events) => this.#writeState(events, context)),
      this.summaries.read(shown, deltas, context),
      this.roomAccountData.ofRooms(shown, accountData, context),
      this.#prejoinStates(shown),
      this.pushCounts.read(context.userId, joined),
    ]);
    const answer: RoomsAnswer = {};
    const put = (entry: RoomEntry, room: JsonObject): void => {
      (answer[entry.section] ??= {})[entry.roomId] = room;
    };
    for (const entry of shown) {
      const { roomId, section } = entry;
      if (section === 'invite') put(entry, { invite_state: { events: prejoin.get(roomId) ?? [] } });
      else if (section === 'knock') put(entry, { knock_state: { events: prejoin.get(roomId) ?? [] } });
      else {
        const room = this.#room(entry, context, { slices, timeline, state, summaries, data, unread });
        if (room !== undefined) put(entry, room);
      }
    }
    return answer;
  }

  #room(
    entry: RoomEntry,
    context: SyncContext,
    parts: {
      readonly slices: ReadonlyMap<string, TimelineSlice>;
      readonly timeline: Written;
      readonly state: Written;
      readonly summaries: ReadonlyMap<string, JsonObject>;
      readonly data: ReadonlyMap<string, readonly JsonObject[]>;
      readonly unread: ReadonlyMap<string, RoomCounts>;
    },
  ): JsonObject | undefined {
    const { roomId } = entry;
    const slice = parts.slices.get(roomId);
    const timeline = parts.timeline.get(roomId) ?? [];
    const state = parts.state.get(roomId) ?? [];
    const summary = parts.summaries.get(roomId);
    const data = parts.data.get(roomId) ?? [];
    const always = entry.fresh || context.fullState || entry.section === 'leave';
    if (
      !always &&
      timeline.length === 0 &&
      state.length === 0 &&
      data.length === 0 &&
      summary === undefined &&
      slice?.limited !== true
    ) {
      return undefined;
    }
    const start = slice?.start;
    const stateKey = context.useStateAfter ? 'state_after' : 'state';
    const room: JsonObject = {
      timeline: {
        events: timeline,
        limited: slice?.limited ?? false,
        prev_batch: start === undefined ? formatSyncToken(context.since ?? context.now) : formatRoomToken(start),
      },
      [stateKey]: { events: state },
      account_data: { events: data },
    };
    if (entry.section === 'leave') return room;
    return {
      ...room,
      summary: summary ?? {},
      ephemeral: { events: [] },
      ...unreadOf(parts.unread.get(roomId) ?? new Map(), context.filter.room.timeline.unreadThreadNotifications),
    };
  }

  async #writeTimelines(
    entries: readonly RoomEntry[],
    slices: ReadonlyMap<string, TimelineSlice>,
    context: SyncContext,
  ): Promise<Written> {
    const events = entries.flatMap((entry) => slices.get(entry.roomId)?.events ?? []);
    return this.#write(await this.visibility.visible(context.userId, events), context, {});
  }

  async #writeState(states: ReadonlyMap<string, readonly StoredEvent[]>, context: SyncContext): Promise<Written> {
    const visible = [...states.values()].flatMap((events) =>
      events.map((stored) => ({ stored, membership: undefined })),
    );
    return this.#write(visible, context, { withoutAggregations: true });
  }

  async #write(
    visible: readonly VisibleEvent[],
    context: SyncContext,
    options: { readonly withoutAggregations?: boolean },
  ): Promise<Written> {
    const { filter, userId, deviceId } = context;
    const byRoom = new Map<string, JsonObject[]>();
    const events: readonly object[] =
      filter.eventFormat === 'federation'
        ? visible.map(({ stored }) => stored.event.pdu)
        : await this.serializer.serialize({ userId, deviceId }, visible, { withoutRoomId: true, ...options });
    const pick = compileEventFields(filter.eventFields);
    for (const [index, { stored }] of visible.entries()) {
      const written = events[index] as JsonObject | undefined;
      if (written === undefined) continue;
      const { roomId } = stored.event;
      const list = byRoom.get(roomId);
      const event = pick === undefined ? written : pick(written);
      if (list === undefined) byRoom.set(roomId, [event]);
      else list.push(event);
    }
    return byRoom;
  }

  /** The state that came with invites and knocks, and the member event itself. */
  async #prejoinStates(entries: readonly RoomEntry[]): Promise<Map<string, JsonObject[]>> {
    const waiting = entries.filter((entry) => entry.section === 'invite' || entry.section === 'knock');
    const loaded = await this.events.many(waiting.map((entry) => entry.membership.eventId));
    return new Map(
      waiting.flatMap((entry): [string, JsonObject[]][] => {
        const member = loaded.get(entry.membership.eventId)?.event;
        if (member === undefined) return [];
        const own = {
          type: member.type,
          state_key: member.stateKey ?? '',
          sender: member.sender,
          content: member.content,
        };
        return [[entry.roomId, [...prejoinStateOf(member), own]]];
      }),
    );
  }

  async #withoutIgnoredInvites(entries: readonly RoomEntry[], context: SyncContext): Promise<readonly RoomEntry[]> {
    if (!entries.some((entry) => entry.section === 'invite')) return entries;
    const ignored = new Set(await this.accountData.ignoredBy(context.userId));
    return entries.filter((entry) => entry.section !== 'invite' || !ignored.has(entry.membership.sender));
  }
}

/** @spec client-server-api#receiving-notifications */
function unreadOf(counts: RoomCounts, byThread: boolean): JsonObject {
  const write = ({ notify, highlight }: UnreadCount): JsonObject => ({
    notification_count: notify,
    highlight_count: highlight,
  });
  if (!byThread) return { unread_notifications: write(totalOf(counts)) };
  const threads = [...counts].filter(([threadId]) => threadId !== 'main');
  return {
    unread_notifications: write(counts.get('main') ?? { notify: 0, highlight: 0 }),
    ...(threads.length > 0 && {
      unread_thread_notifications: Object.fromEntries(threads.map(([threadId, count]) => [threadId, write(count)])),
    }),
  };
}
