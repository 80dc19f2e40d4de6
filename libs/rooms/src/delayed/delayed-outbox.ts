import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Alarm, Clock, Logger } from '@rookery/platform';
import { deleteDelayed, type DelayedEventRow, dueAt, nextDue } from './delayed-events.query.js';
import { DelayedSending } from './delayed-sending.js';

const batchSize = 50;
/** After a failure that is ours, before the next try. */
const retryMs = 10_000;

/** Sends delayed events when their time has come, over restarts, each once. */
@Injectable()
export class DelayedOutbox implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #alarm: Alarm;
  #working: Promise<void> | undefined;
  #stopped = false;

  constructor(
    private readonly database: Database,
    private readonly sending: DelayedSending,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#alarm = new Alarm(clock, () => {
      this.#working ??= this.#sendDue().finally(() => {
        this.#working = undefined;
      });
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    if (this.database.isBesideWriter) return;
    const next = await nextDue(this.database);
    if (next !== undefined) this.wakeAt(next);
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopped = true;
    this.#alarm.stop();
    await this.#working;
  }

  /** Sends one before its time. @throws MatrixError as sending throws: then it stays */
  async send(row: DelayedEventRow): Promise<void> {
    await this.sending.send(row);
    await this.#delete(row.delay_id);
  }

  /**
   * Something is due at this time, milliseconds since the epoch. What was restarted or canceled is found out when it rings.
   */
  wakeAt(dueMs: number): void {
    this.#alarm.set(dueMs);
  }

  async #sendDue(): Promise<void> {
    let failed = false;
    try {
      for (;;) {
        const due = await dueAt(this.database, this.clock.nowMs(), batchSize);
        const sent = await Promise.all(due.map((row) => this.#trySend(row)));
        failed = sent.includes(false);
        if (failed || due.length < batchSize || this.#stopped) break;
      }
      const next = await nextDue(this.database);
      if (next !== undefined) this.wakeAt(failed ? Math.max(next, this.clock.nowMs() + retryMs) : next);
    } catch (error) {
      this.logger.error('Could not look for delayed events', { err: error });
      this.wakeAt(this.clock.nowMs() + retryMs);
    }
  }

  /** @returns false when it is to be tried again */
  async #trySend(row: DelayedEventRow): Promise<boolean> {
    try {
      await this.sending.send(row);
    } catch (error) {
      if (!MatrixError.is(error) || error.status >= 500 || error.status === 429) {
        this.logger.error('Could not send a delayed event', { delay_id: row.delay_id, err: error });
        return false;
      }
      this.logger.info('A delayed event is not allowed any more', { delay_id: row.delay_id, reason: error.message });
    }
    try {
      await this.#delete(row.delay_id);
      return true;
    } catch (error) {
      this.logger.error('Could not delete a delayed event', { delay_id: row.delay_id, err: error });
      return false;
    }
  }

  async #delete(delayId: string): Promise<void> {
    await this.database.write((tx) => deleteDelayed(tx, delayId), { name: 'delayed_events_delete' });
  }
}
