import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { domainOf, isJsonObject, isValidRoomId, type JsonObject } from '@rookery/matrix-types';
import { Config, Logger, type Requester, serverRequester } from '@rookery/platform';
import { AccountDataService } from '@rookery/users';
import { selectAliasesOf } from '../directory/alias.query.js';
import { isPublished, moveListing } from '../directory/directory.query.js';
import { RoomHooks, type RoomView } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';

/**
 * Takes along into a room that replaces another what this server holds of that one: a user's tags and direct chats when the
 * user comes into it, and by a hook what others hold; local aliases and the place in the directory once both rooms name each other, whoever replaced it.
 */
@Injectable()
export class SuccessorData implements OnModuleInit {
  readonly #running = new Set<Promise<void>>();

  // Eight parameters: tags, direct chats and the listing of a room are moved along when somebody follows it.
  constructor(
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly memberships: MembershipReader,
    private readonly accountData: AccountDataService,
    private readonly state: RoomStateReader,
    private readonly database: Database,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: (batch) => {
        if (batch.backfilled) return;
        for (const { event, replacesState } of batch.events) {
          if (event.type === 'm.room.tombstone' && batch.room.stateId(event.type, '') === event.eventId) {
            this.#run(this.#moveFrom(batch.roomId, event), { roomId: batch.roomId });
          }
          const isJoin = event.type === 'm.room.member' && event.content['membership'] === 'join';
          if (!isJoin || batch.room.stateId('m.room.member', event.stateKey!) !== event.eventId) continue;
          if (domainOf(event.stateKey!) === this.config.serverName) {
            this.#run(this.#moveAlong(event.stateKey!, batch.room, replacesState), { userId: event.stateKey! });
          }
        }
      },
    });
  }

  /** Resolves when nothing is under way. */
  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }

  #run(work: Promise<void>, about: Readonly<Record<string, string>>): void {
    const run = work
      .catch((error: unknown) => {
        this.logger.warn('What was set for a replaced room was not taken along', { ...about, err: error });
      })
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  async #moveFrom(roomId: string, tombstone: RoomEvent): Promise<void> {
    const { replacement_room: replacement } = tombstone.content;
    if (typeof replacement !== 'string' || !isValidRoomId(replacement)) return;
    const create = (await this.state.currentEvent(replacement, 'm.room.create'))?.event;
    if (create && predecessorOf(create) === roomId) await this.#moveListing(roomId, replacement);
  }

  async #moveListing(oldRoomId: string, newRoomId: string): Promise<void> {
    const [aliases, isListed] = await Promise.all([
      selectAliasesOf(this.database, oldRoomId),
      isPublished(this.database, oldRoomId),
    ]);
    if (aliases.length === 0 && !isListed) return;
    await this.database.write((tx) => moveListing(tx, oldRoomId, newRoomId), { name: 'move_aliases' });
  }

  async #moveAlong(userId: string, room: RoomView, memberEventBefore: string | undefined): Promise<void> {
    const create = await room.state('m.room.create', '');
    const oldRoomId = create && predecessorOf(create);
    if (oldRoomId === undefined || oldRoomId === room.roomId) return;
    const tombstone = await this.state.currentEvent(oldRoomId, 'm.room.tombstone');
    // Anybody can make a room that claims to follow another.
    if (tombstone?.event.content['replacement_room'] === room.roomId) await this.#moveListing(oldRoomId, room.roomId);
    if (!(await this.memberships.inRoom(userId, oldRoomId))) return;
    // Who only changes the name is there already, and may have changed what was taken along.
    const before = memberEventBefore === undefined ? undefined : await this.events.one(memberEventBefore);
    if (before?.event.content['membership'] === 'join') return;
    const requester = serverRequester(userId);
    const followed = this.hooks.all.map(async (hook) => hook.onFollowed?.(userId, oldRoomId, room.roomId));
    await this.#copyTags(requester, oldRoomId, room.roomId);
    await this.#copyDirectChats(requester, oldRoomId, room.roomId);
    await Promise.all(followed);
  }

  async #copyTags(requester: Requester, oldRoomId: string, newRoomId: string): Promise<void> {
    const { userId } = requester;
    const present = await this.accountData.tags(userId, newRoomId);
    for (const [tag, value] of Object.entries(await this.accountData.tags(userId, oldRoomId))) {
      if (Object.hasOwn(present, tag) || !isJsonObject(value)) continue;
      await this.accountData.setTag(userId, newRoomId, tag, value, { requester });
    }
  }

  #copyDirectChats(requester: Requester, oldRoomId: string, newRoomId: string): Promise<void> {
    const move = (direct: Readonly<JsonObject>): Readonly<JsonObject> => {
      const moved = Object.entries(direct).flatMap(([other, roomIds]): [string, unknown][] =>
        Array.isArray(roomIds) && roomIds.includes(oldRoomId) && !roomIds.includes(newRoomId)
          ? [[other, [...(roomIds as unknown[]), newRoomId]]]
          : [],
      );
      return moved.length === 0 ? direct : { ...direct, ...Object.fromEntries(moved) };
    };
    return this.accountData.change(requester.userId, 'm.direct', move, { requester });
  }
}

/** The room that a room says it replaces. */
function predecessorOf({ content: { predecessor } }: RoomEvent): string | undefined {
  const roomId = isJsonObject(predecessor) ? predecessor['room_id'] : undefined;
  return typeof roomId === 'string' && isValidRoomId(roomId) ? roomId : undefined;
}
