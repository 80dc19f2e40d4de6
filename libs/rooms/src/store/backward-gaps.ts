import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock } from '@rookery/platform';
import { type BackwardGap, backwardGaps, forgetFailedPulls, noteFailedPulls } from './pull-attempts.query.js';

/** Where the history of rooms goes on elsewhere, and what came of asking for it. */
@Injectable()
export class BackwardGaps {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
  ) {}

  /** Events of a room before which something is missing, the latest first; at most `limit`. */
  of(roomId: string, limit: number): Promise<BackwardGap[]> {
    return backwardGaps(this.database, roomId, limit);
  }

  /** Notes what of that was asked for has come, and what nobody gave, and why. */
  async note(roomId: string, came: readonly string[], failed: readonly string[], cause: string): Promise<void> {
    const nowTs = this.clock.nowMs();
    await this.database.write(
      async (tx) => {
        if (came.length > 0) await forgetFailedPulls(tx, roomId, came);
        if (failed.length > 0) await noteFailedPulls(tx, roomId, failed, nowTs, cause);
      },
      { name: 'note_backfill' },
    );
  }
}
