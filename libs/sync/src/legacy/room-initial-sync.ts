import { Injectable } from '@nestjs/common';
import type { EventFilter, JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { MembershipReader, RoomAccess, RoomDirectory, RoomReadingService } from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { RoomCompany } from './room-company.js';

/** The first look at a room, for clients from before `/sync`. */
@Injectable()
export class RoomInitialSync {
  constructor(
    private readonly access: RoomAccess,
    private readonly reading: RoomReadingService,
    private readonly directory: RoomDirectory,
    private readonly memberships: MembershipReader,
    private readonly accountData: AccountDataService,
    private readonly company: RoomCompany,
  ) {}

  /**
   * One room as its reader may read it: state, the last events, and for members who is there and has read what.
   * @param options.limit events
   * @throws MatrixError 403 `M_FORBIDDEN`
   * @spec client-server-api#get_matrixclientv3roomsroomidinitialsync
   */
  async of(
    requester: Requester,
    roomId: string,
    { limit, filter }: { readonly limit: number; readonly filter: EventFilter },
  ): Promise<JsonObject> {
    const { userId } = requester;
    const reading = await this.access.read(requester, roomId);
    const from = await this.reading.endToken(roomId);
    const [page, state, isPublished, own, accountData, beside] = await Promise.all([
      limit > 0 ? this.reading.messages(requester, roomId, { from, direction: 'b', limit, filter }) : { end: from },
      this.reading.allState(requester, roomId),
      this.directory.isPublished(roomId),
      this.memberships.inRoom(userId, roomId),
      this.accountData.forRooms(userId, [roomId]),
      reading.kind === 'joined' ? this.company.of(requester, roomId) : { presence: [], receipts: [] },
    ]);
    const kept = accountData.filter((row) => this.accountData.isKept(row));
    const contents = await AccountDataService.parsedContents(kept);
    const { end: earlier, chunk = [] } = page as { readonly end?: string; readonly chunk?: JsonObject[] };
    return {
      room_id: roomId,
      ...(reading.kind !== 'peeking' && own && { membership: own.membership }),
      messages: { ...(earlier !== undefined && { start: earlier }), end: from, chunk: chunk.toReversed() },
      state,
      visibility: isPublished ? 'public' : 'private',
      account_data: kept.map(({ type }, index) => ({ type, content: contents[index]! })),
      ...beside,
    };
  }
}
