import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { EventStore } from '../persistence/event-store.js';
import type { StoredEvent } from '../persistence/stored-event.js';
import { ReaderWishes } from '../reading/reader-wishes.js';
import { selectEdits, selectReferences, selectThreads } from './aggregations.query.js';

/** What is bundled with an event. */
export interface Aggregation {
  readonly edit?: StoredEvent;
  readonly references?: readonly string[];
  readonly thread?: { readonly latest: StoredEvent; readonly count: number; readonly participated: boolean };
}

const maxReferences = 100;

/** Finds what other events add to events: edits, references, threads. */
@Injectable()
export class Aggregations {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly wishes: ReaderWishes,
  ) {}

  /**
   * Aggregations of the events that have any, by event id, in a bounded number of queries.
   * @spec client-server-api#aggregations-of-child-events
   */
  async of(userId: string, events: readonly StoredEvent[]): Promise<Map<string, Aggregation>> {
    const targets = events
      .filter((stored) => stored.redactedBy === undefined && stored.event.stateKey === undefined)
      .map((stored) => stored.event.eventId);
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
    const edits = await selectEdits(this.database, [...new Set([...ids, ...threads.map((thread) => thread.latest)])]);
    const loaded = await this.events.many([
      ...edits.map((edit) => edit.event_id),
      ...threads.map((thread) => thread.latest),
    ]);
    const add = (target: string, more: Aggregation): void => void found.set(target, { ...found.get(target), ...more });
    for (const row of edits) {
      const edit = loaded.get(row.event_id);
      if (edit && edit.redactedBy === undefined) add(row.target, { edit });
    }
    for (const row of references) {
      add(row.target, { references: [...(found.get(row.target)?.references ?? []), row.event_id] });
    }
    for (const row of threads) {
      const latest = loaded.get(row.latest);
      if (latest) add(row.target, { thread: { latest, count: row.count, participated: !!row.participated } });
    }
    return found;
  }
}
