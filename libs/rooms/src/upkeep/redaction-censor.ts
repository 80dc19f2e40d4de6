import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { eventFromRow, pduText, redactEvent } from '@rookery/events';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { EventStore, knownRules, sameServer } from '../store/event-store.js';

interface DueRow {
  readonly event_id: string;
  readonly redacts: string;
  readonly recheck: boolean | 0 | 1;
  readonly redactor: string;
  readonly sender: string | null;
  readonly stream_ordering: number | null;
  readonly json: string | null;
  readonly room_version: string;
}

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
    await this.database.write(
      (tx) => tx.run('DELETE FROM event_txn_id_device_id WHERE inserted_ts < ?', [now - transactionsMs]),
      { name: 'expire_transactions' },
    );
    const retentionMs = this.config.get('redaction_retention_period');
    if (retentionMs === undefined || retentionMs === null) return;
    while (await this.#censorSome(now - retentionMs));
  }

  /** Whether there may be more. */
  async #censorSome(beforeTs: number): Promise<boolean> {
    const due = await this.database.query<DueRow>(
      `SELECT r.event_id, r.redacts, r.recheck, e.sender AS redactor, t.sender, j.stream_ordering, j.json,
         o.room_version FROM redactions r
       JOIN events e ON e.event_id = r.event_id JOIN rooms o ON o.room_id = e.room_id
       LEFT JOIN events t ON t.event_id = r.redacts AND t.room_id = e.room_id
       LEFT JOIN event_json j ON j.stream_ordering = t.stream_ordering
       WHERE r.have_censored = FALSE AND r.received_ts <= ? ORDER BY r.received_ts LIMIT ${batchSize}`,
      [beforeTs],
    );
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
          await tx.run('UPDATE event_json SET json = ? WHERE stream_ordering = ?', [
            pduText(event),
            row.stream_ordering,
          ]);
        }
        const ids = due.map((row) => row.event_id);
        await tx.run(`UPDATE redactions SET have_censored = TRUE WHERE ${tx.dialect.anyOf('event_id')}`, [ids]);
      },
      { name: 'censor_redactions', erase: true },
    );
    this.events.forget(due.map((row) => row.redacts));
    return due.length === batchSize;
  }
}
