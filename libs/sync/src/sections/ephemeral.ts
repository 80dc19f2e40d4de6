import { Injectable } from '@nestjs/common';
import { receiptContents, ReceiptService, TypingService } from '@rookery/ephemeral';
import { type JsonObject, passesRoom } from '@rookery/matrix-types';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

/** Typing and receipts of rooms. */
@Injectable()
export class EphemeralSection {
  constructor(
    private readonly typing: TypingService,
    private readonly receipts: ReceiptService,
  ) {}

  /** Joined rooms in which somebody began or ceased to type, or read on, since the last sync. */
  async changedRooms(joined: ReadonlySet<string>, { userId, since, now }: SyncContext): Promise<string[]> {
    if (since === undefined) return [];
    const typing = await this.typing.changes(joined, { after: since.typing, upTo: now.typing });
    if (!this.receipts.mayHaveChanged(userId, joined, since.receipts)) return [...typing.keys()];
    const receipts = await this.receipts.changes(userId, joined, since.receipts, now.receipts);
    return [...typing.keys(), ...receipts.keys()];
  }

  /** The ephemeral events of each joined room: what changed, and all that holds for rooms that the client hears of anew. */
  async ofRooms(entries: readonly RoomEntry[], context: SyncContext): Promise<Map<string, JsonObject[]>> {
    const { userId, since, now } = context;
    const filter = context.filter.room.ephemeral;
    const joined = entries.filter((entry) => entry.section === 'join' && passesRoom(filter, entry.roomId));
    const anew = joined.filter((entry) => entry.fresh || context.fullState).map((entry) => entry.roomId);
    const stayed = new Set(joined.map((entry) => entry.roomId).filter((roomId) => !anew.includes(roomId)));
    const result = new Map<string, JsonObject[]>();
    const add = (roomId: string, event: JsonObject): void => {
      const list = result.get(roomId);
      if (list === undefined) result.set(roomId, [event]);
      else list.push(event);
    };
    if (filter.passesType('m.typing')) {
      const typing = new Map([
        ...(await this.typing.changes(anew, undefined)),
        ...(await this.typing.changes(stayed, since && { after: since.typing, upTo: now.typing })),
      ]);
      for (const [roomId, userIds] of typing) add(roomId, { type: 'm.typing', content: { user_ids: userIds } });
    }
    if (filter.passesType('m.receipt')) {
      const [whole, changed] = await Promise.all([
        anew.length > 0 ? this.receipts.forRooms(userId, anew, now.receipts) : undefined,
        since !== undefined && stayed.size > 0
          ? this.receipts.changes(userId, stayed, since.receipts, now.receipts)
          : undefined,
      ]);
      for (const [roomId, receipts] of [...(whole ?? []), ...(changed ?? [])]) {
        if (receipts.length === 0) continue;
        for (const content of receiptContents(receipts)) add(roomId, { type: 'm.receipt', content });
      }
    }
    return result;
  }
}
