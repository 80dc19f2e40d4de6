import { Injectable, type OnModuleInit } from '@nestjs/common';
import { domainOf, isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Config, Logger, type Requester } from '@rookery/platform';
import { AccountDataService } from '@rookery/users';
import { RoomHooks, type RoomView } from '../hooks.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { serverRequester } from '../upkeep/room-shutdown.service.js';

/** Takes a user's tags and direct chats along into the room that replaces another, when the user comes into it. */
@Injectable()
export class SuccessorData implements OnModuleInit {
  readonly #running = new Set<Promise<void>>();

  constructor(
    private readonly hooks: RoomHooks,
    private readonly memberships: MembershipReader,
    private readonly accountData: AccountDataService,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: (batch) => {
        if (batch.backfilled) return;
        for (const { event } of batch.events) {
          const isJoin = event.type === 'm.room.member' && event.content['membership'] === 'join';
          if (!isJoin || batch.room.stateId('m.room.member', event.stateKey!) !== event.eventId) continue;
          if (domainOf(event.stateKey!) === this.config.serverName) this.#start(event.stateKey!, batch.room);
        }
      },
    });
  }

  /** Resolves when nothing is under way. */
  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }

  #start(userId: string, room: RoomView): void {
    const run = this.#moveAlong(userId, room)
      .catch((error: unknown) => {
        this.logger.warn('What a user had set for a replaced room was not taken along', { userId, err: error });
      })
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  async #moveAlong(userId: string, room: RoomView): Promise<void> {
    const create = await room.state('m.room.create', '');
    const predecessor = create?.content['predecessor'];
    const oldRoomId = isJsonObject(predecessor) ? predecessor['room_id'] : undefined;
    if (typeof oldRoomId !== 'string') return;
    if (!(await this.memberships.inRoom(userId, oldRoomId))) return;
    const requester = serverRequester(userId);
    await this.#copyTags(requester, oldRoomId, room.roomId);
    await this.#copyDirectChats(requester, oldRoomId, room.roomId);
  }

  async #copyTags(requester: Requester, oldRoomId: string, newRoomId: string): Promise<void> {
    const { userId } = requester;
    const present = await this.accountData.tags(userId, newRoomId);
    for (const [tag, value] of Object.entries(await this.accountData.tags(userId, oldRoomId))) {
      if (Object.hasOwn(present, tag) || !isJsonObject(value)) continue;
      await this.accountData.setTag(userId, newRoomId, tag, value, { requester });
    }
  }

  async #copyDirectChats(requester: Requester, oldRoomId: string, newRoomId: string): Promise<void> {
    const { userId } = requester;
    const direct = await this.accountData.find(userId, undefined, 'm.direct');
    if (!direct) return;
    let isChanged = false;
    const moved: JsonObject = {};
    for (const [other, roomIds] of Object.entries(direct)) {
      moved[other] = roomIds;
      if (!Array.isArray(roomIds) || !roomIds.includes(oldRoomId) || roomIds.includes(newRoomId)) continue;
      moved[other] = [...(roomIds as unknown[]), newRoomId];
      isChanged = true;
    }
    if (isChanged) await this.accountData.set(userId, undefined, 'm.direct', moved, { requester });
  }
}
