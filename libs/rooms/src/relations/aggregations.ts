import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { EventStore } from '../persistence/event-store.js';
import type { StoredEvent } from '../persistence/stored-event.js';
import { ReaderWishes } from '../reading/reader-wishes.js';
import { RecentEvents } from '../reading/recent-events.js';
import { VisibilityFilter } from '../reading/visibility-filter.js';
import { type ChildRow, selectEdits, selectReferences, selectReplies, selectThreads } from './aggregations.query.js';

/** What is bundled with an event. */
export interface Aggregation {
  readonly edit?: StoredEvent;
  readonly references?: readonly string[];
  readonly thread?: { readonly latest: StoredEvent; readonly count: number; readonly participated: boolean };
}

const maxReferences = 100;
/** How far back an edit or a reply is looked for when the newest one may not be seen. */
const maxOlder = 50;

/** Finds what other events add to events: edits, references, threads. */
@Injectable()
export class Aggregations {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly wishes: ReaderWishes,
    private readonly visibility: VisibilityFilter,
  ) {}

  /**
   * Aggregations of the events that have any, by event id, in a bounded number of queries. Children that the reader may
   * not see are left out, though they still count as replies.
   * @spec client-server-api#aggregations-of-child-events
   */
  async of(userId: string, events: readonly StoredEvent[]): Promise<Map<string, Aggregation>> {
    const targets = events
      .filter((stored) => stored.redactedBy === undefined && stored.event.stateKey === undefined)
      .map((stored) => stored.event.eventId)
      .filter((eventId) => !this.recent.isUnrelated(eventId));
    const found = new Map<string, Aggregation>();
    if (targets.length === 0) return found;
    const related = await this.database.query<{ relates_to_id: string }>(
      `SELECT DISTINCT relates_to_id FROM event_relations WHERE ${this.database.dialect.anyOf('relates_to_id')}`,
      [targets],
    );
    if (related.length === 0) return found;
    const ids = related.map((row) => row.relates_to_id);
    const ignored = [...(await this.wishes.ignoredBy(userId))];
    const [threads, references] = await Promise.all([
      selectThreads(this.database, ids, userId, ignored),
      selectReferences(this.database, ids, maxReferences),
    ]);
    const latest = threads.map((thread) => ({ target: thread.target, event_id: thread.latest }));
    const [replies, shownReferences] = await Promise.all([
      this.#newestVisible(userId, latest, (hidden) => selectReplies(this.database, hidden, maxOlder)),
      this.#visible(userId, references),
    ]);
    const editable = [...new Set([...ids, ...[...replies.values()].map((reply) => reply.event.eventId)])];
    const edits = await this.#newestVisible(userId, await selectEdits(this.database, editable, 1), (hidden) =>
      selectEdits(this.database, hidden, maxOlder),
    );
    const add = (target: string, more: Aggregation): void => void found.set(target, { ...found.get(target), ...more });
    for (const [target, edit] of edits) if (edit.redactedBy === undefined) add(target, { edit });
    for (const row of references) {
      if (!shownReferences.has(row.event_id)) continue;
      add(row.target, { references: [...(found.get(row.target)?.references ?? []), row.event_id] });
    }
    for (const row of threads) {
      const reply = replies.get(row.target);
      if (reply) add(row.target, { thread: { latest: reply, count: row.count, participated: !!row.participated } });
    }
    return found;
  }

  /** Of each target the first child that the reader may see; older ones are looked at only where the newest is hidden. */
  async #newestVisible(
    userId: string,
    newest: readonly ChildRow[],
    older: (targets: readonly string[]) => Promise<ChildRow[]>,
  ): Promise<Map<string, StoredEvent>> {
    const chosen = new Map<string, StoredEvent>();
    const choose = async (rows: readonly ChildRow[]): Promise<void> => {
      const visible = await this.#visible(userId, rows);
      for (const row of rows) {
        const child = visible.get(row.event_id);
        if (child && !chosen.has(row.target)) chosen.set(row.target, child);
      }
    };
    await choose(newest);
    const hidden = newest.map((row) => row.target).filter((target) => !chosen.has(target));
    if (hidden.length > 0) await choose(await older(hidden));
    return chosen;
  }

  async #visible(userId: string, rows: readonly ChildRow[]): Promise<Map<string, StoredEvent>> {
    if (rows.length === 0) return new Map();
    const stored = await this.events.inOrder([...new Set(rows.map((row) => row.event_id))]);
    const visible = await this.visibility.visible(userId, stored);
    return new Map(visible.map((each) => [each.stored.event.eventId, each.stored]));
  }
}
