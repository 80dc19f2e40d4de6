import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { eventFromRow, pduText, redactEvent } from '@rookery/events';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { isRedactable } from '../model/stored-event.js';
import { EventStore, knownRules, sameServer } from '../store/event-store.js';
import { expireTransactions } from '../store/transactions.query.js';
import { RoomHooks } from '../hooks.js';
import { keptRooms } from './history-removal.js';
import {
  boundRedactionTimes,
  type DueRow,
  markCensored,
  selectDueRedactions,
  unmarkArrived,
  updateEventJson,
} from './redaction-censor.query.js';

const periodMs = 5 * 60_000;
const batchSize = 100;
/** Transaction ids are remembered so long. */
const transactionsMs = 24 * 3_600_000;

/** Makes redactions final after a while: what was redacted leaves the database. Forgets old transaction ids as well. */
@Injectable()
export class RedactionCensor implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly tasks: BackgroundTasks,
    private readonly hooks: RoomHooks,
  ) {}

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.run(signal);
    this.tasks.add({ name: 'censor_redactions', role: 'writer', everyMs: periodMs, run }).start();
  }

  /** Makes all redactions final that are old enough, until the signal ends it. */
  async run(signal?: AbortSignal): Promise<void> {
    const now = this.clock.nowMs();
    await this.database.write(
      async (tx) => {
        await expireTransactions(tx, now - transactionsMs);
        await boundRedactionTimes(tx, now);
      },
      { name: 'expire_transactions' },
    );
    const retentionMs = this.config.get('redaction_retention_period');
    if (retentionMs === undefined || retentionMs === null) return;
    let last: DueRow | undefined;
    do last = await this.#censorSome(now - retentionMs, last);
    while (last && signal?.aborted !== true);
  }

  /** The last of those that were looked at, where there may be more. */
  async #censorSome(beforeTs: number, after: DueRow | undefined): Promise<DueRow | undefined> {
    const found = await selectDueRedactions(this.database, beforeTs, after, batchSize);
    const next = found.length === batchSize ? found.at(-1) : undefined;
    const kept = await keptRooms(
      this.hooks,
      found.map((row) => row.room_id),
      'redaction',
    );
    // What is kept is due until it is not kept any more.
    const due = found.filter((row) => !kept.has(row.room_id));
    if (due.length === 0) return next;
    await this.database.write(
      async (tx) => {
        for (const row of due) {
          if (
            row.json === null ||
            row.stream_ordering === null ||
            (row.recheck && !sameServer(row.redactor, row.sender ?? ''))
          )
            continue;
          const event = eventFromRow(row.json, row.redacts, knownRules(row.room_version));
          if (isRedactable(event.type)) await updateEventJson(tx, row.stream_ordering, pduText(redactEvent(event)));
        }
        const ids = due.map((row) => row.event_id);
        await markCensored(tx, ids);
        const absent = due.filter((row) => row.json === null || row.stream_ordering === null);
        await unmarkArrived(
          tx,
          absent.map((row) => row.event_id),
        );
        tx.unlessRolledBack(() => this.events.forget(due.map((row) => row.redacts)));
      },
      { name: 'censor_redactions', erase: true },
    );
    return next;
  }
}
