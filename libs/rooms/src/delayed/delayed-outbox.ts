import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Alarm, Clock, KeyedMutex, Logger } from '@rookery/platform';
import {
  deleteDelayed,
  type DelayedEventRow,
  dueAt,
  findDelayed,
  nextDue,
  restartDelayed,
} from './delayed-events.query.js';
import { DelayedSending } from './delayed-sending.js';

/** So many are sent at once: one that takes long holds up nobody else. */
const maxAtOnce = 50;
/** After a failure that is ours, before the next try; twice as long after each further one. */
const retryMs = 10_000;
const longestRetryMs = 3_600_000;

/** An event that could not be sent, or not be deleted afterwards. */
interface Postponed {
  readonly failures: number;
  /** Milliseconds since the epoch. */
  readonly againMs: number;
  /** It was sent: all that is left is to delete it. */
  readonly isSent: boolean;
}

/** Sends delayed events when their time has come, over restarts, each once; does what their owners want of them before. */
@Injectable()
export class DelayedOutbox implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #alarm: Alarm;
  /** By id: what was answered to an owner holds, whatever becomes due meanwhile. */
  readonly #turns = new KeyedMutex();
  readonly #sending = new Map<string, Promise<void>>();
  /** By id. Not in the rows: from those clients are told since when an event waits. */
  readonly #postponed = new Map<string, Postponed>();
  #working: Promise<void> | undefined;
  /** Since the last look for what is due began: that may have been too early. */
  #hasRung = false;
  #stopped = false;

  constructor(
    private readonly database: Database,
    private readonly sending: DelayedSending,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#alarm = new Alarm(clock, () => {
      this.#hasRung = true;
      this.#working ??= this.#work();
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    if (this.database.isBesideWriter) return;
    const next = await nextDue(this.database, []);
    if (next !== undefined) this.wakeAt(next);
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopped = true;
    this.#alarm.stop();
    await this.#working;
    await Promise.all(this.#sending.values());
  }

  /** Sends one before its time. @throws MatrixError 404 `M_NOT_FOUND`, and as sending throws: then it stays */
  send(delayId: string): Promise<void> {
    return this.#inTurn(delayId, async (row) => {
      await this.sending.send(row);
      await this.#deleteSent(delayId);
    });
  }

  /** Sends one never. @throws MatrixError 404 `M_NOT_FOUND`, also where it was sent just now */
  cancel(delayId: string): Promise<void> {
    return this.#inTurn(delayId, async () => {
      await this.#delete(delayId);
      this.#postponed.delete(delayId);
    });
  }

  /** Lets the time of one begin anew. @throws MatrixError 404 `M_NOT_FOUND`, also where it was sent just now */
  restart(delayId: string): Promise<void> {
    return this.#inTurn(delayId, async () => {
      const nowMs = this.clock.nowMs();
      const sendTs = await this.database.write((tx) => restartDelayed(tx, delayId, nowMs), {
        name: 'delayed_events_restart',
      });
      if (sendTs === undefined) throw noSuchDelayedEvent();
      this.#postponed.delete(delayId);
      this.wakeAt(sendTs);
    });
  }

  /**
   * Something is due at this time, milliseconds since the epoch. What was restarted or canceled is found out when it rings.
   */
  wakeAt(dueMs: number): void {
    this.#alarm.set(dueMs);
  }

  #inTurn(delayId: string, work: (row: DelayedEventRow) => Promise<void>): Promise<void> {
    // What is being sent is known to the process that sends it.
    this.database.onlyAtWriter('an event that is sent later');
    return this.#turns.run(delayId, async () => {
      const row = this.#postponed.get(delayId)?.isSent === true ? undefined : await findDelayed(this.database, delayId);
      if (row === undefined) throw noSuchDelayedEvent();
      await work(row);
    });
  }

  /** Never rejects. */
  async #work(): Promise<void> {
    while (this.#hasRung && !this.#stopped) {
      this.#hasRung = false;
      await this.#sendDue();
    }
    this.#working = undefined;
  }

  /** Begins to send what is due; does not wait until it is sent. Never rejects. */
  async #sendDue(): Promise<void> {
    try {
      while (!this.#stopped) {
        const free = maxAtOnce - this.#sending.size;
        if (free === 0) {
          await Promise.race(this.#sending.values());
          continue;
        }
        const nowMs = this.clock.nowMs();
        const due = await dueAt(this.database, nowMs, this.#passedOver(nowMs), free);
        for (const { delay_id: id } of due) this.#begin(id);
        if (due.length > 0) continue;
        this.#forgetGone(nowMs);
        break;
      }
      const next = await nextDue(this.database, this.#passedOver(this.clock.nowMs()));
      if (next !== undefined) this.wakeAt(next);
      for (const { againMs } of this.#postponed.values()) this.wakeAt(againMs);
    } catch (error) {
      this.logger.error('Could not look for delayed events', { err: error });
      this.wakeAt(this.clock.nowMs() + retryMs);
    }
  }

  /** What is no business of a look for what is due: it is being sent, or its pause is not over. */
  #passedOver(nowMs: number): string[] {
    const resting = [...this.#postponed].filter(([, { againMs }]) => againMs > nowMs);
    return [...this.#sending.keys(), ...resting.map(([id]) => id)];
  }

  /** Those whose pause is over and that were not found any more. */
  #forgetGone(nowMs: number): void {
    for (const [id, { againMs }] of this.#postponed)
      if (againMs <= nowMs && !this.#sending.has(id)) this.#postponed.delete(id);
  }

  #begin(delayId: string): void {
    const sending = this.#turns
      .run(delayId, () => this.#trySend(delayId))
      .catch((error: unknown) => {
        this.logger.error('Could not send a delayed event', { delay_id: delayId, err: error });
        this.#postpone(delayId, this.#postponed.get(delayId)?.isSent ?? false);
      })
      .finally(() => this.#sending.delete(delayId));
    this.#sending.set(delayId, sending);
  }

  #postpone(delayId: string, isSent: boolean): void {
    const failures = this.#postponed.get(delayId)?.failures ?? 0;
    const againMs = this.clock.nowMs() + Math.min(retryMs * 2 ** failures, longestRetryMs);
    this.#postponed.set(delayId, { failures: failures + 1, againMs, isSent });
    this.wakeAt(againMs);
  }

  /** @throws when it is to be tried again */
  async #trySend(delayId: string): Promise<void> {
    // Its owner may have had a turn since it was found due.
    const row = await findDelayed(this.database, delayId);
    if (row === undefined) return void this.#postponed.delete(delayId);
    if (row.send_ts > this.clock.nowMs()) return this.wakeAt(row.send_ts);
    if (!this.#postponed.get(delayId)?.isSent) await this.#sendOrGiveUp(row);
    await this.#deleteSent(delayId);
  }

  async #sendOrGiveUp(row: DelayedEventRow): Promise<void> {
    try {
      await this.sending.send(row);
    } catch (error) {
      if (!MatrixError.is(error) || error.status >= 500 || error.status === 429) throw error;
      this.logger.info('A delayed event is not allowed any more', { delay_id: row.delay_id, reason: error.message });
    }
  }

  /** Never rejects: what was sent cannot be taken back, and is not sent again. */
  async #deleteSent(delayId: string): Promise<void> {
    try {
      await this.#delete(delayId);
      this.#postponed.delete(delayId);
    } catch (error) {
      this.logger.error('Could not delete a delayed event', { delay_id: delayId, err: error });
      this.#postpone(delayId, true);
    }
  }

  async #delete(delayId: string): Promise<void> {
    await this.database.write((tx) => deleteDelayed(tx, delayId), { name: 'delayed_events_delete' });
  }
}

export const noSuchDelayedEvent = (): MatrixError => MatrixError.notFound('There is no such delayed event');
