import { Injectable } from '@nestjs/common';
import { presenceContent, PresenceReader, receiptContents, ReceiptService } from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { SyncService } from '../sync.service.js';

/** Who is there in a room, and has read what. */
@Injectable()
export class RoomCompany {
  constructor(
    private readonly sync: SyncService,
    private readonly presence: PresenceReader,
    private readonly receipts: ReceiptService,
    private readonly clock: Clock,
  ) {}

  /** As events, in a room that the user is in. */
  async of({ userId, isGuest }: Requester, roomId: string): Promise<Record<'presence' | 'receipts', JsonObject[]>> {
    const now = this.sync.currentToken();
    const [states, receipts] = await Promise.all([
      isGuest
        ? []
        : this.presence.changes({
            ...{ userId, joinedRooms: new Set([roomId]), freshRooms: [] },
            ...{ since: undefined, upTo: now.presence },
          }),
      this.receipts.forRooms(userId, [roomId], now.receipts),
    ]);
    const nowMs = this.clock.nowMs();
    return {
      presence: states.map((each) => ({
        ...{ type: 'm.presence', sender: each.userId, content: presenceContent(each, nowMs) },
      })),
      receipts: [...receipts.values()]
        .flatMap((list) => receiptContents(list))
        .map((content) => ({ ...{ type: 'm.receipt', room_id: roomId, content: content as JsonObject } })),
    };
  }
}
