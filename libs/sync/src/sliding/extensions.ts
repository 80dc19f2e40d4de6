import { Injectable } from '@nestjs/common';
import { DeviceListService, OneTimeKeyService, ToDeviceService } from '@rookery/e2ee';
import { receiptContent, ReceiptService, type StoredReceipt, TypingService } from '@rookery/ephemeral';
import { type JsonObject, parseSyncFilter } from '@rookery/matrix-types';
import { AccountDataService, type RoomAccountDataRow } from '@rookery/users';
import { type AccountDataNews, AccountDataSection, eventsByRoom } from '../sections/account-data.js';
import { type RoomMemory, wholeAccount } from './connections.js';
import type { ExtensionAnswer, ExtensionContext, ExtensionNews, ExtensionQuery, Written } from './extension-context.js';
import { RequiredState } from './required-state.js';
import {
  profilesExtension,
  type RoomExtension,
  type SlidingRequest,
  stickyExtension,
  threadsExtension,
} from './request.js';
import { UnstableExtensions } from './unstable-extensions.js';

type Told = 'accountData' | 'receipts' | 'typing';

const everything = parseSyncFilter({});
const unknownRoom: RoomMemory = {
  section: 'join',
  sentUpTo: undefined,
  timelineLimit: 0,
  requiredState: RequiredState.of([]).key,
  accountData: false,
  receipts: false,
  typing: false,
};

/**
 * What clients switch on beside the rooms: to-device messages, device lists and keys, account data, receipts, typing. What of
 * a room was sent once is kept up to date wherever the client looks, so that nothing is missed while the room is out of sight.
 */
@Injectable()
export class Extensions {
  // Eight parameters: one for each extension of the answer.
  constructor(
    private readonly accountDataNews: AccountDataSection,
    private readonly accountData: AccountDataService,
    private readonly receipts: ReceiptService,
    private readonly typing: TypingService,
    private readonly toDevice: ToDeviceService,
    private readonly deviceLists: DeviceListService,
    private readonly keys: OneTimeKeyService,
    private readonly unstable: UnstableExtensions,
  ) {}

  /** No query where nothing is new. */
  async gather(query: ExtensionQuery): Promise<ExtensionNews> {
    const { userId, since, now, joined } = query;
    const receipts =
      since !== undefined && this.receipts.mayHaveChanged(userId, joined, since.receipts)
        ? await this.receipts.changes(userId, joined, since.receipts, now.receipts)
        : new Map<string, StoredReceipt[]>();
    const readRooms = new Set(
      [...receipts].flatMap(([roomId, list]) => (list.some((receipt) => receipt.userId === userId) ? [roomId] : [])),
    );
    return { query, receipts, readRooms };
  }

  async write(news: ExtensionNews, context: ExtensionContext): Promise<ExtensionAnswer> {
    const { toDevice, e2ee, accountData, receipts, typing, threads, sticky, profiles } = news.query.request.extensions;
    if (!accountData) forget('accountData', context);
    if (!receipts) forget('receipts', context);
    if (!typing) forget('typing', context);
    const parts: Record<string, Written | undefined> = {
      to_device: toDevice && (await this.#toDevice(news.query, toDevice)),
      e2ee: e2ee ? await this.#e2ee(news.query) : undefined,
      account_data: accountData && (await this.#accountData(news.query, accountData, context)),
      receipts: receipts && (await this.#receipts(news, receipts, context)),
      typing: typing && (await this.#typing(news.query, typing, context)),
      [threadsExtension]: threads && (await this.unstable.threads(news.query, threads.limit)),
      [profilesExtension]: profiles && (await this.unstable.profiles(news.query, profiles.fields, context)),
      [stickyExtension]: sticky && (await this.unstable.sticky(news.query, sticky, context)),
    };
    const body: JsonObject = {};
    let isEmpty = true;
    for (const [name, part] of Object.entries(parts)) {
      if (part === undefined) continue;
      body[name] = part.value;
      if (part.hasNews) isEmpty = false;
    }
    return { body, isEmpty };
  }

  async #toDevice(
    { userId, deviceId, now }: ExtensionQuery,
    { since, limit }: { readonly since: number | undefined; readonly limit: number },
  ): Promise<Written | undefined> {
    if (deviceId === undefined) return undefined;
    // Coming back with a token says that everything before it has arrived.
    if (since !== undefined) await this.toDevice.acknowledge(userId, deviceId, since);
    const after = since ?? 0;
    const page = await this.toDevice.messages(userId, deviceId, after, now.toDevice, limit);
    return {
      value: { next_batch: String(page.position), events: [...page.events] },
      hasNews: page.events.length > 0,
    };
  }

  async #e2ee({ userId, deviceId, since, now, joined }: ExtensionQuery): Promise<Written> {
    const value: JsonObject = {};
    let hasNews = false;
    if (since !== undefined) {
      const lists = await this.deviceLists.changes({ userId, joinedRooms: joined, after: since, upTo: now });
      hasNews = lists.changed.length > 0 || lists.left.length > 0;
      if (hasNews) value['device_lists'] = { changed: [...lists.changed], left: [...lists.left] };
    }
    if (deviceId !== undefined) {
      hasNews ||= since !== undefined && this.keys.mayHaveChanged(userId, deviceId, since.toDevice, now.toDevice);
      const { counts, unusedFallbackTypes } = await this.keys.counts(userId, deviceId);
      value['device_one_time_keys_count'] = counts as JsonObject;
      value['device_unused_fallback_key_types'] = [...unusedFallbackTypes];
    }
    return { value, hasNews };
  }

  async #accountData(query: ExtensionQuery, extension: RoomExtension, context: ExtensionContext): Promise<Written> {
    const { userId, deviceId, isGuest, now } = query;
    const { memory } = context;
    const before = memory?.rooms.get(wholeAccount);
    const isTold = before?.accountData === true;
    // Who had it once hears of what was deleted meanwhile as well.
    const since = isTold ? query.since : before && query.since && { ...query.since, accountData: 0 };
    const news: AccountDataNews = await this.accountDataNews.changes({
      userId,
      deviceId,
      isGuest,
      since,
      now,
      filter: everything,
      fullState: !isTold,
      useStateAfter: false,
      asText: true,
    });
    if (!isTold) context.changes.set(wholeAccount, { ...unknownRoom, accountData: true });
    const changed = isTold ? news.byRoom : await this.#roomDataSince(query);
    const { anew, following } = scopeOf('accountData', extension, query.request, changed.keys(), context);
    const whole = (anew.length > 0 ? await this.accountData.forRooms(userId, anew) : []).filter(
      // The connection may have been told of a room that it knows before the extension was for others.
      (row) => this.accountData.isKept(row) || memory?.rooms.has(row.roomId) === true,
    );
    // A room is in one of the two.
    const ofRooms = await eventsByRoom(
      new Map([
        ...following.map((roomId) => [roomId, changed.get(roomId) ?? []] as const),
        ...Map.groupBy(whole, (row) => row.roomId),
      ]),
      [...anew, ...following],
      true,
    );
    return {
      value: { global: news.global, rooms: Object.fromEntries(ofRooms) },
      hasNews: news.global.length > 0 || ofRooms.size > 0,
    };
  }

  async #roomDataSince({ userId, since, now }: ExtensionQuery): Promise<Map<string, RoomAccountDataRow[]>> {
    if (since === undefined || !this.accountData.hasChanged(userId, since.accountData)) return new Map();
    const rows = await this.accountData.roomChanges(userId, since.accountData, now.accountData);
    return Map.groupBy(rows, (row) => row.roomId);
  }

  async #receipts(news: ExtensionNews, extension: RoomExtension, context: ExtensionContext): Promise<Written> {
    const { userId, now, joined, request } = news.query;
    const { anew, following } = scopeOf('receipts', extension, request, news.receipts.keys(), context);
    const wanted = anew.filter((roomId) => joined.has(roomId));
    // Of a room that is new to the client, or that it looks at further back, it can show other people's receipts for the events of
    // the timeline only.
    const isKnown = (roomId: string): boolean => isKnownAsJoined(roomId, context);
    const fresh = wanted.filter((roomId) => !isKnown(roomId));
    const shown = fresh.concat(expandedIn(roomsInSight(extension, request, context), new Set(anew), context));
    const eventIds = shown.flatMap((roomId) => [...(context.timelines.get(roomId) ?? [])]);
    const [ofEvents, ofRooms] = await Promise.all([
      this.receipts.forEvents(userId, shown, eventIds, now.receipts),
      this.receipts.forRooms(userId, wanted.filter(isKnown), now.receipts),
    ]);
    const ofNews = following.map((roomId) => [roomId, news.receipts.get(roomId) ?? []] as const);
    const rooms: JsonObject = {};
    for (const [roomId, list] of Map.groupBy([...ofEvents, ...ofRooms, ...ofNews], ([id]) => id)) {
      const receipts = list.flatMap(([, some]) => some);
      if (receipts.length > 0) rooms[roomId] = { type: 'm.receipt', content: receiptContent(receipts) as JsonObject };
    }
    return { value: { rooms }, hasNews: Object.keys(rooms).length > 0 };
  }

  async #typing(query: ExtensionQuery, extension: RoomExtension, context: ExtensionContext): Promise<Written> {
    const { joined, since, now, request } = query;
    const changed = since
      ? await this.typing.changes(joined, { after: since.typing, upTo: now.typing })
      : new Map<string, readonly string[]>();
    const { anew, following } = scopeOf('typing', extension, request, changed.keys(), context);
    const wanted = anew.filter((roomId) => joined.has(roomId));
    const typists = new Map<string, readonly string[]>([
      // The client may have heard of them before, that somebody types.
      ...wanted.filter((roomId) => isKnownAsJoined(roomId, context)).map((roomId) => [roomId, []] as const),
      ...(await this.typing.changes(wanted, undefined)),
      ...following.map((roomId) => [roomId, changed.get(roomId) ?? []] as const),
    ]);
    const rooms: JsonObject = {};
    for (const [roomId, userIds] of typists) rooms[roomId] = { type: 'm.typing', content: { user_ids: userIds } };
    return { value: { rooms }, hasNews: typists.size > 0 };
  }
}

/** Whether the client came with the room as one that its user is in. */
function isKnownAsJoined(roomId: string, { memory }: ExtensionContext): boolean {
  return memory?.rooms.get(roomId)?.section === 'join';
}

/** Rooms of the answer that an extension is about. */
function roomsInSight(
  { lists, rooms }: RoomExtension,
  request: SlidingRequest,
  { selection, deferred }: ExtensionContext,
): Set<string> {
  const inSight = new Set<string>();
  for (const [name, roomIds] of selection.byList) {
    if (lists === undefined || lists.has(name)) for (const roomId of roomIds) inSight.add(roomId);
  }
  for (const { roomId } of selection.rooms.keys()) {
    if (request.subscriptions.has(roomId) && (rooms === undefined || rooms.has(roomId))) inSight.add(roomId);
  }
  for (const roomId of deferred) inSight.delete(roomId);
  return inSight;
}

/**
 * Of which rooms everything is told, and of which what changed; and remembers both.
 * @param changed rooms with news
 */
function scopeOf(
  told: Told,
  extension: RoomExtension,
  request: SlidingRequest,
  changed: Iterable<string>,
  context: ExtensionContext,
): { readonly anew: readonly string[]; readonly following: readonly string[] } {
  const inSight = roomsInSight(extension, request, context);
  const isEverywhere = extension.lists === undefined && extension.rooms === undefined;
  const current = (roomId: string): RoomMemory | undefined =>
    context.changes.get(roomId) ?? context.memory?.rooms.get(roomId);
  const anew: string[] = [];
  for (const roomId of inSight) {
    const memory = current(roomId);
    if (memory === undefined || memory[told]) continue;
    anew.push(roomId);
    context.changes.set(roomId, { ...memory, [told]: true });
  }
  const whole = new Set(anew);
  const following: string[] = [];
  for (const roomId of changed) {
    const memory = current(roomId);
    if (memory === undefined || !memory[told] || whole.has(roomId)) continue;
    if (isEverywhere || inSight.has(roomId)) following.push(roomId);
    // The client misses something here, and gets everything again when it looks.
    else context.changes.set(roomId, { ...memory, [told]: false });
  }
  return { anew, following };
}

/** Rooms of the answer whose timeline goes further back than the client had it. */
function expandedIn(
  inSight: ReadonlySet<string>,
  anew: ReadonlySet<string>,
  { memory, changes, timelines }: ExtensionContext,
): string[] {
  const limitOf = (rooms: ReadonlyMap<string, RoomMemory> | undefined, roomId: string, otherwise: number): number =>
    rooms?.get(roomId)?.timelineLimit ?? otherwise;
  return [...timelines.keys()].filter(
    (roomId) =>
      inSight.has(roomId) &&
      !anew.has(roomId) &&
      limitOf(changes, roomId, 0) > limitOf(memory?.rooms, roomId, Infinity),
  );
}

/** The extension is off: whoever switches it on again gets everything again. */
function forget(told: Told, { memory, changes }: ExtensionContext): void {
  for (const [roomId, known] of memory?.rooms ?? []) {
    const current = changes.get(roomId) ?? known;
    if (current[told]) changes.set(roomId, { ...current, [told]: false });
  }
}
