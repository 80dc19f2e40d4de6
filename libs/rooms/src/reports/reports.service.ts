import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';
import { existingAccounts, isLocalUser } from '@rookery/users';
import { RoomReadingService } from '../history/room-reading.service.js';
import { roomExists } from '../membership/membership.query.js';
import { RoomIds } from '../store/room-ids.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { insertEventReport, insertRoomReport, insertUserReport } from './reports.query.js';

/** Keeps what users report to the administrators. */
@Injectable()
export class Reports {
  constructor(
    private readonly database: Database,
    private readonly reading: RoomReadingService,
    private readonly memberships: MembershipReader,
    private readonly ids: RoomIds,
    private readonly limiter: RateLimiter,
    private readonly clock: Clock,
    private readonly config: Config,
  ) {}

  /**
   * @throws MatrixError 404 `M_NOT_FOUND` for an event that the reporter cannot see or in a room that they are not in, 429
   *   `M_LIMIT_EXCEEDED`
   */
  async event(requester: Requester, roomId: string, eventId: string, body: Readonly<JsonObject>): Promise<void> {
    await this.limiter.take('rc_reports', requester.userId, requester);
    if (!(await this.#isSeen(requester, roomId, eventId))) return;
    const report = {
      id: await this.ids.report(),
      receivedTs: this.clock.nowMs(),
      roomId,
      eventId,
      userId: requester.userId,
      reason: typeof body['reason'] === 'string' ? body['reason'].replaceAll('\0', '') : null,
      content: JSON.stringify({ reason: body['reason'], score: body['score'] }),
    };
    await this.database.write((tx) => insertEventReport(tx, report), { name: 'report_event' });
  }

  /** @throws MatrixError 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED` */
  async room(requester: Requester, roomId: string, reason: string): Promise<void> {
    await this.limiter.take('rc_reports', requester.userId, requester);
    if (!(await roomExists(this.database, roomId))) {
      if (this.#isDiscreet) return;
      throw MatrixError.noSuchRoom();
    }
    const id = await this.ids.report();
    const now = this.clock.nowMs();
    await this.database.write((tx) => insertRoomReport(tx, id, now, roomId, requester.userId, reason), {
      name: 'report_room',
    });
  }

  async #isSeen(requester: Requester, roomId: string, eventId: string): Promise<boolean> {
    try {
      await this.reading.visibleEvent(requester, roomId, eventId);
      const membership = await this.memberships.inRoom(requester.userId, roomId);
      if (membership?.membership !== 'join') throw MatrixError.notFound('You are not in this room');
      return true;
    } catch (error) {
      if (this.#isDiscreet && MatrixError.is(error)) return false;
      throw error;
    }
  }

  /** Reports do not tell what there is (MSC4277). */
  get #isDiscreet(): boolean {
    return this.config.get('experimental_features.msc4277_enabled');
  }

  /** A user of another server, or one that does not exist, is passed over in silence. */
  async user(requester: Requester, target: string, reason: string): Promise<void> {
    await this.limiter.take('rc_reports', requester.userId, requester);
    if (!isValidUserId(target)) throw MatrixError.notUserId();
    if (!isLocalUser(target, this.config.serverName)) return;
    if ((await existingAccounts(this.database, [target])).size === 0) return;
    const id = await this.ids.report();
    const now = this.clock.nowMs();
    await this.database.write((tx) => insertUserReport(tx, id, now, target, requester.userId, reason), {
      name: 'report_user',
    });
  }
}
