import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
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

  /** One round, unless it is cut short. */
  async run(signal: AbortSignal): Promise<void> {
    const now = this.clock.nowMs();
    const { config, removal } = this;
    const unusedMs = config.get('unused_expiration_time');
    const options = { name: 'expire_media_ids', anyProcess: true };
    await this.database.write((tx) => deletePending(tx, now - unusedMs), options);
    const localMs = config.get('media_retention.local_media_lifetime');
    if (localMs !== undefined && localMs !== null) {
      const deleted = await removal.deleteUnusedLocal(
        {
          unusedSinceTs: now - localMs,
          largerThanBytes: -1,
          keepAvatars: true,
          includeQuarantined: false,
          includeProtected: false,
        },
        signal,
      );
      if (deleted.length > 0) this.logger.info('Deleted old local media', { files: deleted.length });
    }
    const remoteMs = config.get('media_retention.remote_media_lifetime');
    if (remoteMs !== undefined && remoteMs !== null) {
      const deleted = await removal.deleteUnusedRemote(now - remoteMs, { includeQuarantined: false, signal });
      if (deleted > 0) this.logger.info('Deleted old media of other servers', { files: deleted });
    }
    await this.previews.expire(signal);
  }
}
