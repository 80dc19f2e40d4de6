import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { eventFromRow, pduText, redactEvent } from '@rookery/events';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { EventStore, knownRules, sameServer } from '../store/event-store.js';
import { expireTransactions } from '../store/transactions.query.js';
import { markCensored, selectDueRedactions, updateEventJson } from './redaction-censor.query.js';

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
  ) {}

  onModuleInit(): void {
    this.tasks.add({ name: 'censor_redactions', role: 'background', everyMs: periodMs, run: () => this.run() }).start();
  }

  /** Makes all redactions final that are old enough. */
  async run(): Promise<void> {
    const now = this.clock.nowMs();
    await this.database.write((tx) => expireTransactions(tx, now - transactionsMs), { name: 'expire_transactions' });
    const retentionMs = this.config.get('redaction_retention_period');
    if (retentionMs === undefined || retentionMs === null) return;
    while (await this.#censorSome(now - retentionMs));
  }

  /** Whether there may be more. */
  async #censorSome(beforeTs: number): Promise<boolean> {
    const due = await selectDueRedactions(this.database, beforeTs, batchSize);
    if (due.length === 0) return false;
    await this.database.write(
      async (tx) => {
        for (const row of due) {
          if (
            row.json === null ||
            row.stream_ordering === null ||
            (row.recheck && !sameServer(row.redactor, row.sender ?? ''))
          )
            continue;
          const event = redactEvent(eventFromRow(row.json, row.redacts, knownRules(row.room_version)));
          await updateEventJson(tx, row.stream_ordering, pduText(event));
        }
        const ids = due.map((row) => row.event_id);
        await markCensored(tx, ids);
      },
      { name: 'censor_redactions', erase: true },
    );
    this.events.forget(due.map((row) => row.redacts));
    return due.length === batchSize;
  }
}
