import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database, failureLevel, isTransient } from '@rookery/database';
import { Logger, serverRequester } from '@rookery/platform';
import { guestsAmong } from '@rookery/users';
import { type EventBatch, RoomHooks } from '../hooks.js';
import { LeaveService } from '../membership/leave.service.js';

const accessType = 'm.room.guest_access';

/** Lets this server's guests leave rooms that are closed to guests. @spec client-server-api#guest-access */
@Injectable()
export class GuestEviction implements OnModuleInit, OnModuleDestroy {
  readonly #running = new Set<Promise<void>>();
  #isStopping = false;

  constructor(
    private readonly hooks: RoomHooks,
    private readonly leaves: LeaveService,
    private readonly database: Database,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: (batch) => {
        if (isClosing(batch)) this.#start(batch.roomId, [...batch.room.localMembers]);
      },
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#running);
  }

  #start(roomId: string, members: readonly string[]): void {
    const run = this.#depart(roomId, members)
      .catch((error: unknown) =>
        this.logger[failureLevel(error)]('Guests could not leave a room that was closed', { roomId, err: error }),
      )
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  async #depart(roomId: string, members: readonly string[]): Promise<void> {
    for (const guest of await guestsAmong(this.database, members)) {
      if (this.#isStopping) return;
      await this.#departOne(roomId, guest);
    }
  }

  /** One guest's trouble keeps no other in. */
  async #departOne(roomId: string, guest: string): Promise<void> {
    try {
      await this.leaves.leave(serverRequester(guest), roomId, { unchecked: true });
    } catch (error) {
      if (isTransient(error)) throw error;
      this.logger.warn('A guest could not leave a room that was closed', { roomId, userId: guest, err: error });
    }
  }
}

/** Whether a batch takes from guests what they had: new rooms say at once whom they are for. */
function isClosing({ events, backfilled, room }: EventBatch): boolean {
  if (backfilled) return false;
  return events.some(
    ({ event, replacesState }) =>
      event.type === accessType &&
      event.stateKey === '' &&
      replacesState !== undefined &&
      event.content['guest_access'] !== 'can_join' &&
      room.stateId(accessType, '') === event.eventId,
  );
}
