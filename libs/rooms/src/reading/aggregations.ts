import { Injectable } from '@nestjs/common';
import { historyVisibilityIn } from '@rookery/events';
import { Database } from '@rookery/database';
import { isJsonObject } from '@rookery/matrix-types';
import { SingleFlight } from '@rookery/platform';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { HiddenSenders } from './hidden-senders.js';
import { RecentEvents } from '../store/recent-events.js';
import { MembershipHistory } from './membership-history.js';
import { VisibilityFilter } from './visibility-filter.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import {
  type ChildRow,
  selectAlikeReplies,
  selectEdits,
  selectReferences,
  selectRelated,
  selectReplies,
  selectStays,
  selectThreads,
  type ThreadRow,
} from './aggregations.query.js';

/** What is bundled with an event. */
export interface Aggregation {
  readonly edit?: StoredEvent;
  readonly references?: readonly string[];
  readonly thread?: { readonly latest: StoredEvent; readonly count: number; readonly participated: boolean };
}

const maxReferences = 100;
/** How far back an edit or a reply is looked for when the newest one may not be seen. */
const maxOlder = 50;
/** How often the state may have changed between the replies of a thread that are looked at; what is older counts. */
const maxAlike = 500;

/** Finds what other events add to events: edits, references, threads. */
@Injectable()
export class Aggregations {
  readonly #related = new SingleFlight<readonly string[]>();

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly hidden: HiddenSenders,
    private readonly visibility: VisibilityFilter,
    private readonly state: RoomStateReader,
    private readonly history: MembershipHistory,
  ) {}

  /**
   * Aggregations of the events that have any, by event id, in a bounded number of queries. Children that the reader may
   * not see are left out.
   * @spec client-server-api#aggregations-of-child-events
   */
  async of(userId: string, events: readonly StoredEvent[]): Promise<Map<string, Aggregation>> {
    const targets = events
      .filter((stored) => stored.event.stateKey === undefined)
      .map((stored) => stored.event.eventId)
      .filter((eventId) => !this.recent.isUnrelated(eventId));
    const found = new Map<string, Aggregation>();
    if (targets.length === 0) return found;
    const ids = await this.#relatedAmong(targets);
    if (ids.length === 0) return found;
    const ignored = [...(await this.hidden.ignoredBy(userId))];
    const [threads, references] = await Promise.all([
      selectThreads(this.database, ids, userId, ignored),
      selectReferences(this.database, ids, maxReferences),
    ]);
    const latest = threads.map((thread) => ({ target: thread.target, event_id: thread.latest }));
    const [replies, shownReferences] = await Promise.all([
      this.#newestVisible(userId, latest, (hidden) => selectReplies(this.database, hidden, maxOlder)),
      this.#visible(userId, references),
    ]);
    // What is redacted keeps its replies, but there is nothing left to edit.
    const redacted = new Set(events.filter((each) => each.redactedBy !== undefined).map(({ event }) => event.eventId));
    const editable = [
      ...new Set([
        ...ids.filter((eventId) => !redacted.has(eventId)),
        ...[...replies.values()].map((reply) => reply.event.eventId),
      ]),
    ];
    const edits = await this.#newestVisible(
      userId,
      await selectEdits(this.database, editable, 1),
      (hidden) => selectEdits(this.database, hidden, maxOlder),
      isEdit,
    );
    const add = (target: string, more: Aggregation): void => void found.set(target, { ...found.get(target), ...more });
    for (const [target, edit] of edits) add(target, { edit });
    for (const row of references) {
      if (!shownReferences.has(row.event_id)) continue;
      add(row.target, { references: [...(found.get(row.target)?.references ?? []), row.event_id] });
    }
    const shown = threads.filter((row) => replies.has(row.target));
    const hidden = await this.#hiddenReplies(userId, shown, ignored);
    for (const row of shown) {
      const latest = replies.get(row.target)!;
      const count = row.count - (hidden.get(row.target) ?? 0);
      add(row.target, { thread: { latest, count, participated: !!row.participated } });
    }
    return found;
  }

  /** Where another process stores events, members of a room who are woken together ask for the same; who has heard more since asks anew. */
  #relatedAmong(targets: readonly string[]): Promise<readonly string[]> {
    const read = (): Promise<readonly string[]> => selectRelated(this.database, targets);
    const upTo = this.recent.heardUpTo;
    return upTo === undefined ? read() : this.#related.run(`${upTo} ${targets.join(' ')}`, read);
  }

  /**
   * How many replies of threads the reader may not see, by root. There are none of those where a root is seen, and was sent, from
   * within the reader's stay; nor where history was never hidden. Else each reply counts by the state that it sees: what arrived
   * within the stay may be of a branch that knows nothing of it, and what arrived before may lie behind its beginning.
   */
  async #hiddenReplies(
    userId: string,
    threads: readonly ThreadRow[],
    ignored: readonly string[],
  ): Promise<Map<string, number>> {
    const hidden = new Map<string, number>();
    if (threads.length === 0) return hidden;
    const roomIds = [...new Set(threads.map((row) => row.room_id))];
    const stays = await selectStays(this.database, userId, roomIds);
    const doubtful: string[] = [];
    const openRooms = new Map<string, boolean>();
    for (const row of threads) {
      const stay = stays.get(row.room_id);
      if (stay && row.root_depth > stay.depth && row.root_stream > stay.stream) continue;
      let isOpen = openRooms.get(row.room_id);
      if (isOpen === undefined) openRooms.set(row.room_id, (isOpen = await this.#wasAlwaysOpen(row.room_id)));
      if (!isOpen || stay === undefined) doubtful.push(row.target);
    }
    if (doubtful.length === 0) return hidden;
    const ends = await this.history.endsOfStays(userId, roomIds);
    const endsAt = new Map([...ends].map(([roomId, end]) => [roomId, end.streamOrdering]));
    const alike = await selectAlikeReplies(this.database, doubtful, endsAt, ignored, maxAlike);
    // Replies that are hidden for their age alone are counted everywhere until they are purged.
    const visible = await this.#visible(userId, alike, { withUnshown: true });
    for (const row of alike)
      if (!visible.has(row.event_id)) hidden.set(row.target, (hidden.get(row.target) ?? 0) + row.count);
    return hidden;
  }

  /** Whether everybody who joins has ever seen what was said before. */
  async #wasAlwaysOpen(roomId: string): Promise<boolean> {
    const event = await this.state.currentEvent(roomId, 'm.room.history_visibility');
    if (event === undefined) return false;
    const visibility = historyVisibilityIn(event.event.content);
    return event.replacesState === undefined && (visibility === 'shared' || visibility === 'world_readable');
  }

  /**
   * Of each target the first child that the reader may see and that is valid; older ones are looked at only where the newest
   * is not.
   */
  async #newestVisible(
    userId: string,
    newest: readonly ChildRow[],
    older: (targets: readonly string[]) => Promise<ChildRow[]>,
    isValid: (child: StoredEvent) => boolean = () => true,
  ): Promise<Map<string, StoredEvent>> {
    const chosen = new Map<string, StoredEvent>();
    const choose = async (rows: readonly ChildRow[]): Promise<void> => {
      const visible = await this.#visible(userId, rows);
      for (const row of rows) {
        const child = visible.get(row.event_id);
        if (child && !chosen.has(row.target) && isValid(child)) chosen.set(row.target, child);
      }
    };
    await choose(newest);
    const hidden = newest.map((row) => row.target).filter((target) => !chosen.has(target));
    if (hidden.length > 0) await choose(await older(hidden));
    return chosen;
  }

  async #visible(
    userId: string,
    rows: readonly ChildRow[],
    options: { readonly withUnshown?: boolean } = {},
  ): Promise<Map<string, StoredEvent>> {
    if (rows.length === 0) return new Map();
    const stored = await this.events.inOrder([...new Set(rows.map((row) => row.event_id))]);
    const visible = await this.visibility.visible(userId, stored, options);
    return new Map(visible.map((each) => [each.stored.event.eventId, each.stored]));
  }
}

/** Whether an edit says what an event is to be replaced with, as far as can be seen from outside. */
const isEdit = ({ event, redactedBy }: StoredEvent): boolean =>
  redactedBy === undefined && (event.type === 'm.room.encrypted' || isJsonObject(event.content['m.new_content']));
