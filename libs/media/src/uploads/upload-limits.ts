import { Injectable } from '@nestjs/common';
import { Database, type Db } from '@rookery/database';
import { ownUrl } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { MediaUploadLimit } from '@rookery/module-api';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Clock, Config, type Requester } from '@rookery/platform';
import { uploadedBytes } from '../records/media.query.js';

/** Path of the page that says what a limit is, where the settings name no other. */
export const uploadLimitPage = '/_synapse/client/media_upload_limit_exceeded';

/** How much a user may upload: per file, and in a period. */
@Injectable()
export class UploadLimits {
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly modules: ModuleDispatcher,
    private readonly clock: Clock,
  ) {}

  /** Largest file, bytes. */
  get maxBytes(): number {
    return this.config.get('max_upload_size');
  }

  /** 413 `M_TOO_LARGE` */
  tooLarge(): MatrixError {
    return MatrixError.tooLarge(`The file is larger than ${this.maxBytes} bytes`);
  }

  /**
   * Whether a user may upload a file of this size now.
   * @throws MatrixError 413 `M_TOO_LARGE`, 403 `M_USER_LIMIT_EXCEEDED`, and what a module refuses with
   */
  async check(requester: Requester, sizeBytes: number): Promise<void> {
    if (sizeBytes > this.maxBytes) throw this.tooLarge();
    if (this.modules.has('isUserAllowedToUploadMediaOfSize')) {
      const context = callbackContext(requester);
      assertAllowed(await this.modules.gate('isUserAllowedToUploadMediaOfSize', context, requester.userId, sizeBytes));
    }
    await this.checkPeriods(requester, sizeBytes, await this.periodsFor(requester));
  }

  /**
   * Call it before anything of the body is read: what a user uploads in a period is added up by one process.
   * @throws OnlyAtWriterError where another one does, and a limit holds for the user
   */
  async countedHere(requester: Requester): Promise<void> {
    if (this.database.isBesideWriter && (await this.periodsFor(requester)).length > 0)
      this.database.onlyAtWriter('what somebody has uploaded');
  }

  /** The limits by period that hold for a user: a module's, or those of the settings. */
  async periodsFor(requester: Requester): Promise<readonly MediaUploadLimit[]> {
    if (this.modules.has('getMediaUploadLimitsForUser')) {
      const own = await this.modules.provide(
        'getMediaUploadLimitsForUser',
        callbackContext(requester),
        requester.userId,
      );
      if (own !== undefined) return own;
    }
    return this.config
      .get('media_upload_limits')
      .map(({ time_period: timePeriodMs, max_size: maxBytes, info_uri: infoUri, can_upgrade: canUpgrade }) => ({
        maxBytes,
        timePeriodMs,
        infoUri,
        canUpgrade,
      }));
  }

  /**
   * @throws MatrixError 403 `M_USER_LIMIT_EXCEEDED`, with the address of a page that says more; modules are told
   * @spec client-server-api#post_matrixmediav3upload
   */
  async checkPeriods(
    requester: Requester,
    sizeBytes: number,
    limits: readonly MediaUploadLimit[],
    db: Db = this.database,
  ): Promise<void> {
    if (limits.length === 0) return;
    const { userId } = requester;
    const now = this.clock.nowMs();
    const sent = await uploadedBytes(
      db,
      userId,
      limits.map(({ timePeriodMs }) => now - timePeriodMs),
    );
    const index = limits.findIndex(({ maxBytes }, i) => (sent[i] ?? 0) + sizeBytes > maxBytes);
    const limit = limits[index];
    if (limit === undefined) return;
    void this.modules.notify(
      'onMediaUploadLimitExceeded',
      callbackContext(requester),
      userId,
      limit,
      sent[index] ?? 0,
      sizeBytes,
    );
    throw MatrixError.userLimitExceeded(undefined, {
      info_uri: limit.infoUri ?? ownUrl(this.config, uploadLimitPage.slice(1)),
      ...(limit.canUpgrade && { can_upgrade: true }),
    });
  }
}
