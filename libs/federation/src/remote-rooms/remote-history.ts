import { Injectable } from '@nestjs/common';
import { Backfiller } from './backfiller.js';
import { RemoteEventByTime } from './remote-event-by-time.js';

/** The past of a room, as far as other servers have it and this one does not. */
@Injectable()
export class RemoteHistory {
  constructor(
    private readonly backfiller: Backfiller,
    private readonly byTime: RemoteEventByTime,
  ) {}

  backfill(roomId: string, limit: number, depth?: number): Promise<boolean> {
    return this.backfiller.backfill(roomId, limit, depth);
  }

  timestampToEvent(
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
  ): Promise<{ readonly eventId: string; readonly ts: number } | undefined> {
    return this.byTime.find(roomId, ts, direction);
  }
}
