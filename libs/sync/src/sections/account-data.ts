import { Injectable } from '@nestjs/common';
import { WrittenList } from '@rookery/http';
import { type EventFilter, type JsonObject, passesFilter, passesRoom } from '@rookery/matrix-types';
import { ownTurn } from '@rookery/platform';
import { PushRulesService } from '@rookery/push';
import { type AccountDataRow, AccountDataService, type RoomAccountDataRow } from '@rookery/users';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

/** An event of account data on the wire. */
type AccountDataEvent = { readonly type: string; readonly content: JsonObject };

/** Events of account data: much of it is text already, where that was asked for. */
export type AccountDataEvents = readonly AccountDataEvent[] | WrittenList;

/** Account data that a sync tells of. */
export interface AccountDataNews {
  readonly global: AccountDataEvents;
  readonly byRoom: ReadonlyMap<string, readonly RoomAccountDataRow[]>;
}

const nothing: AccountDataNews = { global: [], byRoom: new Map() };

/** What is short enough to be an object among much that is text, bytes. */
const shortBytes = 4_096;

/**
 * Pieces as events, by room. Where it is much, that is done in several turns of the event loop.
 * @param asText of what is long nothing is kept but its text, where it is much
 */
export async function eventsByRoom(
  rows: ReadonlyMap<string, readonly AccountDataRow[]>,
  roomIds: Iterable<string>,
  asText: boolean,
): Promise<Map<string, AccountDataEvents>> {
  const some = [...roomIds].flatMap((roomId): [string, readonly AccountDataRow[]][] => {
    const ofRoom = rows.get(roomId) ?? [];
    return ofRoom.length === 0 ? [] : [[roomId, ofRoom]];
  });
  const isMuch = AccountDataService.partsOf(some.flatMap(([, ofRoom]) => ofRoom)).length > 1;
  const events = new Map<string, AccountDataEvents>();
  for (const [roomId, ofRoom] of some) {
    if (isMuch) await ownTurn();
    events.set(roomId, await eventsOf(ofRoom, asText && isMuch));
  }
  return events;
}

/** @param before further events, which go first */
async function eventsOf(
  rows: readonly AccountDataRow[],
  asText: boolean,
  before: readonly AccountDataEvent[] = [],
): Promise<AccountDataEvents> {
  if (!asText || rows.reduce((sum, { bytes }) => sum + bytes, 0) <= shortBytes) {
    const contents = await AccountDataService.parsedContents(rows);
    return [...before, ...rows.map(({ type }, index) => ({ type, content: contents[index]! }))];
  }
  const list = new WrittenList();
  list.add(before);
  for (const [index, part] of AccountDataService.partsOf(rows).entries()) {
    if (index > 0) await ownTurn();
    list.addWritten(part.map(({ type, content }) => `{"type":${JSON.stringify(type)},"content":${content}}`));
  }
  return list;
}

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
    const global = (own?.global ?? []).filter(
      (row) => this.accountData.isKept(row) || (since !== undefined && row.streamId > since.accountData),
    );
    const first = rules !== undefined && passesFilter(wanted, { ...rules, sender: userId }) ? [rules] : [];
    const rows = await passing(global, wanted, userId);
    return {
      global: await eventsOf(rows, context.asText === true && AccountDataService.partsOf(rows).length > 1, first),
      byRoom: Map.groupBy(own?.rooms ?? [], (row) => row.roomId),
    };
  }

  /** The account data events of each room: what changed, and all of it for rooms that the client hears of anew. */
  async ofRooms(
    entries: readonly RoomEntry[],
    news: AccountDataNews,
    context: SyncContext,
  ): Promise<Map<string, AccountDataEvents>> {
    const filter = context.filter.room.accountData;
    const rooms = entries.filter(
      (entry) => (entry.section === 'join' || entry.section === 'leave') && passesRoom(filter, entry.roomId),
    );
    const anew = rooms.filter((entry) => entry.fresh || context.fullState).map((entry) => entry.roomId);
    const known = context.since?.accountData ?? Infinity;
    const whole = (
      anew.length > 0 ? await this.accountData.forRooms(context.userId, anew, typesOf(filter)) : []
    ).filter((row) => this.accountData.isKept(row) || row.streamId > known);
    const found = new Map([...news.byRoom, ...Map.groupBy(whole, (row) => row.roomId)]);
    const rows = await passing(
      rooms.flatMap(({ roomId }) => found.get(roomId) ?? []),
      filter,
      context.userId,
    );
    return eventsByRoom(
      Map.groupBy(rows, (row) => row.roomId),
      rooms.map(({ roomId }) => roomId),
      context.asText === true,
    );
  }

  async #own({
    userId,
    since,
    now,
    fullState,
    filter,
  }: SyncContext): Promise<
    { readonly global: readonly AccountDataRow[]; readonly rooms: readonly RoomAccountDataRow[] } | undefined
  > {
    const after = since?.accountData ?? 0;
    if (since !== undefined && !fullState && !this.accountData.hasChanged(userId, after)) return undefined;
    const [global, rooms] = await Promise.all([
      this.accountData.changes(userId, fullState ? 0 : after, now.accountData, typesOf(filter.accountData)),
      since === undefined
        ? []
        : this.accountData.roomChanges(userId, after, now.accountData, typesOf(filter.room.accountData)),
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

/** What a filter says of types; `undefined` where it takes all. */
const typesOf = ({ types, notTypes, passesType }: EventFilter): ((type: string) => boolean) | undefined =>
  types === undefined && notTypes.length === 0 ? undefined : passesType;

/** Pieces that pass a filter, which may look at what is in them. */
async function passing<Row extends AccountDataRow>(
  rows: readonly Row[],
  filter: EventFilter,
  sender: string,
): Promise<readonly Row[]> {
  if (filter.passesEverything) return rows;
  // Whom the user is not among, no piece of theirs passes.
  const { senders, notSenders, containsUrl, relTypes, notRelTypes } = filter;
  if (notSenders.includes(sender) || senders?.includes(sender) === false) return [];
  if (containsUrl === undefined && relTypes === undefined && notRelTypes.length === 0) return rows;
  const contents = await AccountDataService.parsedContents(rows);
  return rows.filter(({ type }, index) => passesFilter(filter, { type, sender, content: contents[index]! }));
}
