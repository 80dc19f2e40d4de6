import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { ModuleEvent, RoomApi, RoomInfo, StateFilter } from '@rookery/module-api';
import { toModuleEvent } from '@rookery/module-host';
import { AliasService, MembershipReader, RoomLibrary, RoomStateReader } from '@rookery/rooms';

const maxFilter = 1_000;

/** What modules may know of rooms. */
@Injectable()
export class ModuleRoomLookups {
  constructor(
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly aliases: AliasService,
    private readonly library: RoomLibrary,
  ) {}

  async getRoomState(roomId: string, filter?: StateFilter): Promise<readonly ModuleEvent[]> {
    const stored = await this.state.current(roomId, filter && { types: typesOf(filter) });
    return stored.map(({ event }) => toModuleEvent(event));
  }

  getStateEventsInRoom(roomId: string, filter?: StateFilter): Promise<readonly ModuleEvent[]> {
    return this.getRoomState(roomId, filter);
  }

  async usersShareRoom(userId: string, otherUserId: string): Promise<boolean> {
    return (await this.memberships.sharing(userId, [otherUserId])).has(otherUserId);
  }

  async *listRooms(): AsyncGenerator<RoomInfo> {
    for await (const row of this.library.all()) {
      yield Object.freeze({
        roomId: row.room_id,
        roomVersion: row.version,
        roomType: row.room_type ?? undefined,
        name: row.name ?? undefined,
        canonicalAlias: row.canonical_alias ?? undefined,
        joinedMembers: row.joined_members,
        joinedLocalMembers: row.joined_local_members,
        isPublic: Boolean(row.public),
      });
    }
  }

  async getCanonicalRoomAlias(roomId: string): Promise<string | undefined> {
    const found = await this.state.currentEvent(roomId, 'm.room.canonical_alias');
    const alias = found?.event.content['alias'];
    return typeof alias === 'string' && alias !== '' ? alias : undefined;
  }

  async lookupRoomAlias(alias: string): ReturnType<RoomApi['lookupRoomAlias']> {
    const found = await this.aliases.resolve(alias);
    if (!found) throw MatrixError.noSuchAlias();
    return Object.freeze({ roomId: found.roomId, servers: [...found.servers] });
  }
}

function typesOf(filter: StateFilter): (readonly [type: string, stateKey?: string])[] {
  if (!Array.isArray(filter) || filter.length > maxFilter) {
    throw new RangeError(`A filter is a list of at most ${maxFilter} types or pairs`);
  }
  return filter.map((entry: StateFilter[number]) => (typeof entry === 'string' ? [entry] : [entry[0], entry[1]]));
}
