import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { PushCounts, type RoomCounts, totalOf, type UnreadCount } from '@rookery/push';
import { formatRoomToken } from '@rookery/rooms';
import { formatSyncToken } from '../request/sync-token.js';
import { WrittenRooms } from '../request/written-rooms.js';
import type { SyncContext } from '../sync-context.js';
import { type AccountDataEvents, AccountDataSection, type AccountDataNews } from './account-data.js';
import { EphemeralSection } from './ephemeral.js';
import { PrejoinSection } from './prejoin.js';
import type { RoomEntry } from './room-list.js';
import { RoomStates } from './state.js';
import { StickySection } from './sticky.js';
import { heroesIn, SummarySection } from './summary.js';
import { type ShownTimeline, Timelines } from './timeline.js';
import { EventWriter, type WrittenEvents } from './written-events.js';

/** The part `rooms` of an answer: by section, by room. */
export type RoomsAnswer = Partial<Record<'join' | 'invite' | 'knock' | 'leave', Record<string, JsonObject>>>;

/** Rooms that are held as objects at a time, where all of them are wanted as text. */
const roomsAtOnce = 8;

/** What was read for all rooms at once. */
interface RoomParts {
  readonly timelines: ReadonlyMap<string, ShownTimeline>;
  readonly timeline: ReadonlyMap<string, readonly JsonObject[]>;
  readonly state: WrittenEvents;
  readonly summaries: ReadonlyMap<string, JsonObject>;
  readonly accountData: ReadonlyMap<string, AccountDataEvents>;
  readonly ephemeral: ReadonlyMap<string, readonly JsonObject[]>;
  readonly unread: ReadonlyMap<string, RoomCounts>;
  /** Numbers of unread messages; `undefined` where they are not told (MSC2654). */
  readonly messages: ReadonlyMap<string, number> | undefined;
  readonly sticky: WrittenEvents;
}

/** What a sync tells of its rooms. */
@Injectable()
export class RoomsSection {
  readonly #timelineLimit: number | undefined;
  readonly #withUnread: boolean;

  // Ten parameters: one for each section of a room in the answer, which are read side by side.
  constructor(
    private readonly timelines: Timelines,
    private readonly states: RoomStates,
    private readonly summaries: SummarySection,
    private readonly accountData: AccountDataSection,
    private readonly ephemeral: EphemeralSection,
    private readonly prejoin: PrejoinSection,
    private readonly writer: EventWriter,
    private readonly sticky: StickySection,
    private readonly pushCounts: PushCounts,
    config: Config,
  ) {
    const limit = config.get('filter_timeline_limit');
    this.#timelineLimit = limit < 0 ? undefined : limit;
    this.#withUnread = config.get('experimental_features.msc2654_enabled');
  }

  /**
   * Writes the rooms of {@link RoomsWithNews} as text, a few at a time, so that what this holds does not grow with the user's rooms
   * as fast as the answer does. `undefined` when there are none.
   */
  async text(
    entries: readonly RoomEntry[],
    accountData: AccountDataNews,
    context: SyncContext,
  ): Promise<WrittenRooms | undefined> {
    const written = new WrittenRooms();
    for (let start = 0; start < entries.length; start += roomsAtOnce) {
      const part = await this.build(entries.slice(start, start + roomsAtOnce), accountData, context, { asText: true });
      for (const [section, rooms] of Object.entries(part)) await written.add(section, rooms);
    }
    return written.isEmpty ? undefined : written;
  }

  /**
   * Writes the rooms of {@link RoomsWithNews}.
   * @param options.asText long lists of state may be text already
   * @param options.senders gets who wrote what timelines, invites and knocks show
   */
  async build(
    entries: readonly RoomEntry[],
    accountData: AccountDataNews,
    context: SyncContext,
    { asText = false, senders }: { readonly asText?: boolean; readonly senders?: Set<string> | undefined } = {},
  ): Promise<RoomsAnswer> {
    if (entries.length === 0) return {};
    const joined = entries.filter((entry) => entry.section === 'join').map((entry) => entry.roomId);
    const current = await this.states.current(entries, context);
    // Begun last: whoever fails meanwhile would leave nobody to hear that this failed too.
    const changes = this.states.deltas(entries, context);
    const [timelines, unread] = await Promise.all([
      this.timelines.read(entries, changes, current, context, this.#timelineLimit),
      this.pushCounts.read(context.userId, joined),
    ]);
    const deltas = await changes;
    // Whom rooms are called by, the state must tell.
    const summaries = await this.summaries.read(entries, deltas, current, context);
    const [timeline, state, ownData, ephemeral, prejoin, messages] = await Promise.all([
      this.writer.timelines(timelines, context),
      this.writer.state(
        this.states.pages(entries, { timelines, deltas, heroes: heroesIn(summaries), current }, context),
        context,
        asText || context.stateNamesRoom === true,
      ),
      this.accountData.ofRooms(entries, accountData, context),
      this.ephemeral.ofRooms(entries, context),
      this.prejoin.states(entries),
      this.#withUnread ? this.pushCounts.unreadMessages(context.userId, joined) : undefined,
    ]);
    const sticky = await this.sticky.ofRooms(entries, timelines, context);
    if (senders !== undefined) {
      // Of what is written the filter may have taken who wrote it.
      for (const { events } of timelines.values()) for (const { stored } of events) senders.add(stored.event.sender);
      for (const { sender } of [...prejoin.values()].flat()) if (typeof sender === 'string') senders.add(sender);
    }
    const parts: RoomParts = {
      timelines,
      timeline,
      state,
      summaries,
      accountData: ownData,
      ephemeral,
      unread,
      messages,
      sticky,
    };
    const answer: RoomsAnswer = {};
    for (const entry of entries) {
      const { roomId, section } = entry;
      const room =
        section === 'invite' || section === 'knock'
          ? { [`${section}_state`]: { events: prejoin.get(roomId) ?? [] } }
          : writeRoom(entry, context, parts);
      if (room !== undefined) (answer[section] ??= {})[roomId] = room;
    }
    return answer;
  }
}

/** A room that the user is or was in; `undefined` when there is nothing to tell. */
function writeRoom(entry: RoomEntry, context: SyncContext, parts: RoomParts): JsonObject | undefined {
  const { roomId } = entry;
  const slice = parts.timelines.get(roomId);
  const timeline = parts.timeline.get(roomId) ?? [];
  const state = parts.state.get(roomId) ?? [];
  const summary = parts.summaries.get(roomId);
  const accountData = parts.accountData.get(roomId) ?? [];
  const ephemeral = parts.ephemeral.get(roomId) ?? [];
  const sticky = parts.sticky.get(roomId) ?? [];
  const hasNews =
    timeline.length + state.length + accountData.length + ephemeral.length + sticky.length > 0 ||
    summary !== undefined ||
    slice?.limited === true;
  if (!hasNews && !entry.fresh && !context.fullState && entry.section === 'join') return undefined;
  const start = slice?.start;
  const room: JsonObject = {
    timeline: {
      events: timeline,
      // Whoever has come back since may know some of it: there is a gap to what came before.
      limited: slice?.limited === true || (entry.fresh && entry.section === 'join' && context.since !== undefined),
      prev_batch: start === undefined ? formatSyncToken(context.since ?? context.now) : formatRoomToken(start),
    },
    [stateName(context)]: { events: state },
    account_data: { events: accountData },
  };
  if (entry.section === 'leave') return room;
  return {
    ...room,
    summary: summary ?? {},
    ephemeral: { events: ephemeral },
    ...(sticky.length > 0 && { msc4354_sticky: { events: sticky } }),
    ...(parts.messages && { 'org.matrix.msc2654.unread_count': parts.messages.get(roomId) ?? 0 }),
    ...unreadOf(parts.unread.get(roomId) ?? new Map(), context.filter.room.timeline.unreadThreadNotifications),
  };
}

function stateName({ useStateAfter }: SyncContext): string {
  if (useStateAfter === 'unstable') return 'org.matrix.msc4222.state_after';
  return useStateAfter ? 'state_after' : 'state';
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
