import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { eventFromRow, pduText, redactEvent } from '@rookery/events';
import { Alarm, type BackgroundTask, BackgroundTasks, Clock, Config, Logger } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import type { StoredEvent } from '../model/stored-event.js';
import { EventStore, knownRules } from '../store/event-store.js';
import { keptRooms } from './history-removal.js';
import {
  deleteExpiries,
  expiredAt,
  type ExpiredRow,
  insertExpiries,
  nextExpiry,
  replaceEventJson,
} from './message-expiry.query.js';

/** Where a message says when it destroys itself, milliseconds since the epoch; the field's name. */
const selfDestruct = 'org.matrix.self_destruct_after';
/** Looked at so often whatever the timer says: other processes store messages as well. */
const periodMs = 60_000;
const batchSize = 100;

/**
 * Takes the content of messages out of the database when the time has come that they name themselves, as a redaction does;
 * only where `enable_ephemeral_messages` is set. Each server does so for itself: no event tells of it.
 */
@Injectable()
export class MessageExpiry implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #isOn: boolean;
  readonly #job: BackgroundTask;
  readonly #alarm: Alarm;
  #isRunning = false;

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly clock: Clock,
    private readonly logger: Logger,
    tasks: BackgroundTasks,
    config: Config,
  ) {
    this.#isOn = config.get('enable_ephemeral_messages');
    this.#job = tasks.add({
      ...{ name: 'expire_messages', role: 'writer', everyMs: periodMs },
      run: (signal) => this.#run(signal),
    });
    this.#alarm = new Alarm(clock, () => void this.#ring());
    if (!this.#isOn) return;
    hooks.subscribe({
      inTransaction: async (tx, { events }) => {
        const due = events.flatMap(expiryOf);
        if (due.length > 0) await insertExpiries(tx, due);
      },
      afterCommit: ({ events }) => {
        for (const [, ts] of events.flatMap(expiryOf)) this.#alarm.set(ts);
      },
      onEventsPurged: (tx, _roomId, eventIds) => deleteExpiries(tx, eventIds),
    });
  }

  onApplicationBootstrap(): void {
    if (!this.#isOn) return;
    this.#job.start();
    void this.#job.run();
  }

  async onModuleDestroy(): Promise<void> {
    this.#alarm.stop();
    await this.#job.stop();
  }

  async #ring(): Promise<void> {
    // The run that is under way may have looked too early.
    if (this.#isRunning) await this.#job.run();
    await this.#job.run();
  }

  async #run(signal: AbortSignal): Promise<void> {
    this.#isRunning = true;
    try {
      await this.#expireDue(signal);
    } finally {
      this.#isRunning = false;
    }
  }

  async #expireDue(signal: AbortSignal): Promise<void> {
    const nowMs = this.clock.nowMs();
    let last: ExpiredRow | undefined;
    while (!signal.aborted) {
      const found = await expiredAt(this.database, nowMs, last, batchSize);
      const kept = await keptRooms(
        this.hooks,
        found.flatMap((row) => row.room_id ?? []),
        'expiry',
      );
      // What is kept is looked at again with each run.
      const due = found.filter((row) => row.room_id === null || !kept.has(row.room_id));
      if (due.length > 0) await this.#expire(due);
      if (found.length < batchSize) break;
      last = found.at(-1);
    }
    const next = await nextExpiry(this.database, nowMs);
    if (next !== undefined) this.#alarm.set(next);
  }

  async #expire(due: readonly ExpiredRow[]): Promise<void> {
    const byRoom = Map.groupBy(due, (row) => row.room_id);
    const ids = due.map((row) => row.event_id);
    await this.database.write(
      async (tx) => {
        for (const [roomId, rows] of byRoom) {
          if (roomId === null) continue;
          const inRoom = rows.map((row) => row.event_id);
          // What was derived from their content goes with it: words of the search, texts that were to be sent.
          for (const hook of this.hooks.all) await hook.onEventsPurged?.(tx, roomId, inRoom, true);
        }
        for (const { event_id: eventId, stream_ordering: place, json, room_version: version } of due) {
          if (place === null || json === null || version === null) continue;
          const left = redactEvent(eventFromRow(json, eventId, knownRules(version)));
          await replaceEventJson(tx, place, pduText(left));
        }
        await deleteExpiries(tx, ids);
        tx.unlessRolledBack(() => this.events.forget(ids));
      },
      { name: 'expire_messages', erase: true },
    );
    this.logger.info('Messages destroyed themselves', { events: ids.length });
  }
}

function expiryOf({ event }: StoredEvent): [eventId: string, ts: number][] {
  const ts = event.stateKey === undefined ? event.content[selfDestruct] : undefined;
  return typeof ts === 'number' && Number.isSafeInteger(ts) ? [[event.eventId, ts]] : [];
}
