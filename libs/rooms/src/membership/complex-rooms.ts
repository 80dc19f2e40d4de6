import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { RemoteRooms } from '../remote-rooms.js';
import { countStateEvents } from './membership.query.js';

/** State events of a room of complexity 1. */
const stateEventsPerUnit = 500;

/** Keeps users out of rooms of other servers that are too large for this one, as `limit_remote_rooms` says. */
@Injectable()
export class ComplexRooms {
  constructor(
    private readonly database: Database,
    private readonly remote: RemoteRooms,
    private readonly config: Config,
  ) {}

  /**
   * Checks a room before it is joined, as far as its servers tell.
   * @throws MatrixError 400 `M_RESOURCE_LIMIT_EXCEEDED`
   */
  async assertMayJoin(requester: Requester, roomId: string, servers: readonly string[]): Promise<void> {
    if (!this.#isLimited(requester)) return;
    const complexity = await this.remote.gateway?.directory.complexity(roomId, servers);
    if ((complexity ?? 0) > this.config.get('limit_remote_rooms.complexity')) throw this.refusal;
  }

  /** Whether a room that was joined is too large after all. */
  async isTooLarge(requester: Requester, roomId: string): Promise<boolean> {
    return this.#isLimited(requester) && (await this.of(roomId)) > this.config.get('limit_remote_rooms.complexity');
  }

  /** What the user is told. */
  get refusal(): MatrixError {
    return MatrixError.roomTooComplex(this.config.get('limit_remote_rooms.complexity_error'));
  }

  /** How large a room is that this server knows: its state events, in units of five hundred. */
  async of(roomId: string): Promise<number> {
    const units = (await countStateEvents(this.database, roomId)) / stateEventsPerUnit;
    return Math.round(units * 100) / 100;
  }

  #isLimited(requester: Requester): boolean {
    if (!this.config.get('limit_remote_rooms.enabled')) return false;
    return !(requester.isAdmin && this.config.get('limit_remote_rooms.admins_can_join'));
  }
}
