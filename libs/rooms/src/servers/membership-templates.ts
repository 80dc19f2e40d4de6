import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { MatrixError } from '@rookery/matrix-types';
import { DraftBuilder } from '../pipeline/draft-builder.js';
import { RoomSnapshots } from '../room/room-snapshots.js';
import { WorkingRoom } from '../room/working-room.js';

/** A member event that a user of another server wants to send. */
export interface MembershipDraft {
  readonly roomId: string;
  /** Sender and target. */
  readonly userId: string;
  readonly content: Readonly<JsonObject>;
}

/** Prepares member events for users of other servers, on top of the room as it is. */
@Injectable()
export class MembershipTemplates {
  constructor(
    private readonly snapshots: RoomSnapshots,
    private readonly builder: DraftBuilder,
  ) {}

  /**
   * The event, for its server to sign: nothing is stored.
   * @throws MatrixError 403 `M_FORBIDDEN` when the auth rules refuse it, 404 `M_NOT_FOUND` when the room is not known
   */
  async make({ roomId, userId, content }: MembershipDraft): Promise<RoomEvent> {
    const snapshot = await this.snapshots.get(roomId);
    if (!snapshot) throw MatrixError.noSuchRoom();
    const room = WorkingRoom.aside(snapshot);
    try {
      const draft = { roomId, type: 'm.room.member', stateKey: userId, sender: userId, content };
      const { event } = await this.builder.build(room, draft, await this.builder.before(room));
      return event;
    } finally {
      room.release();
    }
  }
}
