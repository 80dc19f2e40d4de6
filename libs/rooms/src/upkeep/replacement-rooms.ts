import { Injectable } from '@nestjs/common';
import { isTransient, type Tx } from '@rookery/database';
import { Logger, serverRequester } from '@rookery/platform';
import { RoomCreation } from '../creation/room-creation.service.js';
import { JoinService } from '../membership/join.service.js';
import { EventPersister } from '../pipeline/event-persister.js';

/** What is asked for in place of a room that is taken off the server. */
export interface Replacement {
  /** A local user who makes the room. */
  readonly newRoomUserId?: string | undefined;
  readonly newRoomName?: string | undefined;
  readonly message?: string | undefined;
}

/** Rooms for those who were in one that is taken off the server. */
@Injectable()
export class ReplacementRooms {
  constructor(
    private readonly creation: RoomCreation,
    private readonly joins: JoinService,
    private readonly persister: EventPersister,
    private readonly logger: Logger,
  ) {}

  /**
   * Makes the room; nothing where nobody is named who would make it.
   * @param note is written together with it
   */
  async make(request: Replacement, note: (tx: Tx, roomId: string) => Promise<void>): Promise<string | undefined> {
    if (request.newRoomUserId === undefined) return undefined;
    const { roomId } = await this.creation.create(
      serverRequester(request.newRoomUserId),
      {
        preset: 'public_chat',
        name: request.newRoomName ?? 'Content Violation Notification',
        power_level_content_override: { users_default: -10 },
      },
      { unchecked: true, inTransaction: note },
    );
    return roomId;
  }

  /** Says in the new room why it is there. @param taskId of whatever takes the old one away: it may be repeated, and says it once */
  async explain(request: Replacement, roomId: string, taskId: string): Promise<void> {
    const { newRoomUserId: sender } = request;
    if (sender === undefined) return;
    await this.persister.send({
      roomId,
      type: 'm.room.message',
      sender,
      content: {
        msgtype: 'm.text',
        body: request.message ?? 'This room was closed by the administrators of the server because of its content.',
      },
      transaction: { userId: sender, deviceId: '', txnId: `shutdown ${taskId}` },
      unchecked: true,
    });
  }

  /** Brings a user to the new room. Whoever may not go there leaves the old one all the same. */
  async bring(userId: string, newRoomId: string): Promise<void> {
    try {
      await this.joins.join(serverRequester(userId), newRoomId, { unchecked: true });
    } catch (error) {
      if (isTransient(error)) throw error;
      this.logger.info('A user of a closed room could not join the new one', { roomId: newRoomId, userId, err: error });
    }
  }
}
