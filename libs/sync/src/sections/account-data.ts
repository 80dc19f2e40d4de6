import { Injectable } from '@nestjs/common';
import { type JsonObject, passesFilter, passesRoom } from '@rookery/matrix-types';
import { PushRulesService } from '@rookery/push';
import { type AccountDataRow, AccountDataService, type RoomAccountDataRow } from '@rookery/users';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

/** An event of account data on the wire. */
type AccountDataEvent = { readonly type: string; readonly content: JsonObject };

/** Account data that a sync tells of. */
export interface AccountDataNews {
  readonly global: readonly AccountDataEvent[];
  readonly byRoom: ReadonlyMap<string, readonly RoomAccountDataRow[]>;
}

const nothing: AccountDataNews = { global: [], byRoom: new Map() };

/** Whether a piece is there; the others were deleted, which those need to hear only who had them (MSC3391). */
export const isKept = ({ content }: AccountDataRow): boolean => content !== '{}';

/** What users keep at the server, of the account and of rooms. */
@Injectable()
export class AccountDataSection {
  constructor(
    private readonly accountData: AccountDataService,
    private readonly pushRules: PushRulesService,
  ) {}

  /** What changed since the last sync; without one, or where the client wants all state again, all of the account's own. */
  async changes(context: SyncContext): Promise<AccountDataNews> {
    const { userId, since, filter } = context;
    const [own, rules] = await Promise.all([this.#own(context), this.#pushRules(context)]);
    if (own === undefined && rules === undefined) return nothing;
    const wanted = filter.accountData;
    const global = (own?.global ?? [])
      .filter((row) => isKept(row) || (since !== undefined && row.streamId > since.accountData))
      .map((row) => ({
        type: row.type,
        content: JSON.parse(row.content) as JsonObject,
      }));
    return {
      global: [...(rules === undefined ? [] : [rules]), ...global].filter((event) =>
        passesFilter(wanted, { ...event, sender: userId }),
      ),
      byRoom: Map.groupBy(own?.rooms ?? [], (row) => row.roomId),
    };
  }

  /** The account data events of each room: what changed, and all of it for rooms that the client hears of anew. */
  async ofRooms(
    entries: readonly RoomEntry[],
    news: AccountDataNews,
    context: SyncContext,
  ): Promise<Map<string, AccountDataEvent[]>> {
    const filter = context.filter.room.accountData;
    const rooms = entries.filter(
      (entry) => (entry.section === 'join' || entry.section === 'leave') && passesRoom(filter, entry.roomId),
    );
    const anew = rooms.filter((entry) => entry.fresh || context.fullState).map((entry) => entry.roomId);
    const known = context.since?.accountData ?? Infinity;
    const whole = (anew.length > 0 ? await this.accountData.forRooms(context.userId, anew) : []).filter(
      (row) => isKept(row) || row.streamId > known,
    );
    const byRoom = new Map([...news.byRoom, ...Map.groupBy(whole, (row) => row.roomId)]);
    const result = new Map<string, AccountDataEvent[]>();
    for (const { roomId } of rooms) {
      const events = (byRoom.get(roomId) ?? [])
        .filter((row) => filter.passesType(row.type))
        .map((row) => ({ type: row.type, content: JSON.parse(row.content) as JsonObject }));
      if (events.length > 0) result.set(roomId, events);
    }
    return result;
  }

  async #own({
    userId,
    since,
    now,
    fullState,
  }: SyncContext): Promise<
    { readonly global: readonly AccountDataRow[]; readonly rooms: readonly RoomAccountDataRow[] } | undefined
  > {
    const after = since?.accountData ?? 0;
    if (since !== undefined && !fullState && !this.accountData.hasChanged(userId, after)) return undefined;
    const [global, rooms] = await Promise.all([
      this.accountData.changes(userId, fullState ? 0 : after, now.accountData),
      since === undefined ? [] : this.accountData.roomChanges(userId, after, now.accountData),
    ]);
    return { global, rooms };
  }

  /** Push rules are account data to clients, but kept elsewhere. */
  async #pushRules({ userId, since, now, fullState }: SyncContext): Promise<AccountDataEvent | undefined> {
    const isNews =
      since === undefined || fullState || (await this.pushRules.changedBetween(userId, since.pushRules, now.pushRules));
    if (!isNews) return undefined;
    return { type: 'm.push_rules', content: await this.pushRules.content(userId) };
  }
}
