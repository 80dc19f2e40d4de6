import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { BackgroundTasks, Clock, Logger, Semaphore } from '@rookery/platform';
import type { MediaKey } from './media.js';
import { touchMedia } from './media.query.js';

const periodMs = 60_000;
/** Files whose use waits to be noted; the use of further ones is forgotten until the next round. */
const maxWaiting = 100_000;

/** Notes when files were last used: once a minute, all together. */
@Injectable()
export class AccessTimes implements OnModuleInit, OnModuleDestroy {
  #used = new Map<string, Set<string>>();
  #count = 0;
  readonly #turns = new Semaphore(1);

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (): Promise<void> => this.flush();
    this.tasks.add({ name: 'write_media_access_times', role: 'every_process', everyMs: periodMs, run }).start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.flush();
  }

  /** A file was asked for. */
  note({ origin = '', mediaId }: MediaKey): void {
    if (this.#count >= maxWaiting) return;
    let ids = this.#used.get(origin);
    if (ids === undefined) this.#used.set(origin, (ids = new Set()));
    if (ids.has(mediaId)) return;
    ids.add(mediaId);
    this.#count++;
  }

  /** Writes what was noted, also where that has begun already. Never rejects: what cannot be written is forgotten. */
  flush(): Promise<void> {
    return this.#turns.run(() => this.#write());
  }

  async #write(): Promise<void> {
    if (this.#count === 0) return;
    const used = this.#used;
    this.#used = new Map();
    this.#count = 0;
    const now = this.clock.nowMs();
    try {
      await this.database.write(
        async (tx) => {
          for (const [origin, ids] of used) await touchMedia(tx, origin === '' ? undefined : origin, [...ids], now);
        },
        { name: 'media_access_times', anyProcess: true },
      );
    } catch (err) {
      this.logger.error('The use of media could not be noted', { err });
    }
  }
}
