import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, isTransient } from '@rookery/database';
import { BackgroundTasks, Clock, Config, Logger } from '@rookery/platform';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import { PreviewCache } from '../previews/preview-cache.js';
import { deletePending } from '../records/media.query.js';

const periodMs = 3_600_000;

/** Deletes what the settings no longer keep: once an hour, in one process. */
@Injectable()
export class MediaRetention implements OnModuleInit {
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly removal: MediaRemoval,
    private readonly previews: PreviewCache,
    private readonly logger: Logger,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    const run = (signal: AbortSignal): Promise<void> => this.run(signal);
    this.tasks.add({ name: 'media_retention', role: 'media', everyMs: periodMs, run }).start();
  }

  /** One round, unless it is cut short. What fails of it keeps nothing else of it from being done. */
  async run(signal: AbortSignal): Promise<void> {
    const nowMs = this.clock.nowMs();
    const parts = {
      ids: () => this.#expireIds(nowMs),
      local: () => this.#deleteLocal(nowMs, signal),
      remote: () => this.#deleteRemote(nowMs, signal),
      previews: () => this.previews.expire(signal),
    };
    for (const [part, work] of Object.entries(parts)) {
      try {
        await work();
      } catch (error) {
        if (isTransient(error)) throw error;
        this.logger.error('Old media could not be deleted; that is tried again', { part, err: error });
      }
    }
  }

  async #expireIds(nowMs: number): Promise<void> {
    const beforeMs = nowMs - this.config.get('unused_expiration_time');
    await this.database.write((tx) => deletePending(tx, beforeMs), { name: 'expire_media_ids', anyProcess: true });
  }

  async #deleteLocal(nowMs: number, signal: AbortSignal): Promise<void> {
    const lifetimeMs = this.config.get('media_retention.local_media_lifetime');
    if (lifetimeMs === undefined || lifetimeMs === null) return;
    const deleted = await this.removal.deleteUnusedLocal(
      {
        unusedSinceTs: nowMs - lifetimeMs,
        largerThanBytes: -1,
        keepAvatars: true,
        includeQuarantined: false,
        includeProtected: false,
      },
      signal,
    );
    if (deleted.length > 0) this.logger.info('Deleted old local media', { files: deleted.length });
  }

  async #deleteRemote(nowMs: number, signal: AbortSignal): Promise<void> {
    const lifetimeMs = this.config.get('media_retention.remote_media_lifetime');
    if (lifetimeMs === undefined || lifetimeMs === null) return;
    const options = { includeQuarantined: false, signal };
    const deleted = await this.removal.deleteUnusedRemote(nowMs - lifetimeMs, options);
    if (deleted > 0) this.logger.info('Deleted old media of other servers', { files: deleted });
  }
}
