import { Injectable } from '@nestjs/common';
import { Database, type Db, type Tx } from '@rookery/database';
import { relationOf } from '@rookery/events';
import { domainOf, isValidEventId, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger, type Requester } from '@rookery/platform';
import { type ChangedKeys, defineRpc, defineStream, type Stream, Streams } from '@rookery/replication';
import { EventStore, isServable, RoomHooks, type StoredEvent } from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { RoomAudience } from '../common/room-audience.js';
import { EphemeralHooks } from '../hooks.js';
import type { Receipt, ReceiptType, StoredReceipt } from '../model/receipt.js';
import {
  deleteReceiptsOfRoom,
  deleteSomeReceipts,
  highestReceipt,
  newestReceipts,
  privateReceipts,
  publicReceipts,
  receiptsInStream,
  receiptsOf,
  receiptsOfEvents,
  upsertReceipt,
} from './receipt.query.js';

/** What a client sets: both kinds of receipt, and the marker that is account data. */
export type MarkerType = ReceiptType | 'm.fully_read';

/** One marker as a client sends it. */
export interface MarkerRequest {
  readonly type: MarkerType;
  readonly eventId: string;
  readonly threadId?: unknown;
  /** Moving the fully-read marker back is wanted (MSC4446). */
  readonly mayGoBack?: boolean;
}

/** Public receipts of one room that a client is told at most when it hears of the room anew. */
const newestPerRoom = 250;
/** The same for a client that was here before; who was away for long is told of the newest. */
const newsPerRoom = 1_000;
/** Receipts of a room that are deleted at once where all of them go. */
const purgedAtOnce = 500;
/** Steps from a reply, edit or reaction to the event that is in a thread. */
const maxRelationSteps = 3;
const longestThreadIdBytes = 255;

/** Receipts: public ones by room, private ones by user. */
export const receiptsStream = defineStream({
  name: 'receipts',
  takenUpTo: highestReceipt,
  anyProcess: true,
  keys: { room: {}, user: {} },
  read: receiptsInStream,
});

/** Users of this server have read something, as another process has stored; answered by the one that tells of it. */
const receiptsSent = defineRpc<readonly StoredReceipt[], void>('receipts_sent');

/**
 * How far users have read: public and private receipts, in threads or not, and the fully-read marker. A receipt never
 * moves back.
 * @spec client-server-api#receipts
 */
@Injectable()
export class ReceiptService {
  readonly stream: Stream<'room' | 'user'>;
  readonly #inRooms: ChangedKeys;
  readonly #ofUsers: ChangedKeys;

  // Ten parameters: a receipt moves the fully read marker too, and goes to readers here and elsewhere.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly audience: RoomAudience,
    private readonly events: EventStore,
    private readonly accountData: AccountDataService,
    private readonly hooks: EphemeralHooks,
    streams: Streams,
    roomHooks: RoomHooks,
  ) {
    this.stream = streams.of(receiptsStream);
    this.#inRooms = this.stream.changes('room');
    this.#ofUsers = this.stream.changes('user');
    this.stream.serve(receiptsSent, async (receipts) => this.hooks.receiptsSent(receipts));
    roomHooks.subscribe({
      purgeSome: (tx, roomId) => deleteSomeReceipts(tx, roomId, purgedAtOnce),
      onRoomPurged: deleteReceiptsOfRoom,
    });
  }

  /** Whether {@link changes} could find anything; `false` is certain. Costs no query. */
  mayHaveChanged(userId: string, roomIds: ReadonlySet<string>, since: number): boolean {
    return this.#ofUsers.hasChanged(userId, since) || this.#inRooms.changedSince(roomIds, since).length > 0;
  }

  /**
   * Receipts with `after < position <= upTo` that a user may see in rooms, by room and oldest first: those of others where
   * they are public, the newest thousand of each room, and all of the user's own. No query where nothing changed, two at most.
   */
  async changes(
    userId: string,
    roomIds: ReadonlySet<string>,
    after: number,
    upTo: number,
  ): Promise<Map<string, StoredReceipt[]>> {
    const rooms = this.#inRooms.changedSince(roomIds, after);
    const [shown, own] = await Promise.all([
      rooms.length > 0 ? publicReceipts(this.database, userId, rooms, { after, upTo, perRoom: newsPerRoom }) : [],
      this.#ofUsers.hasChanged(userId, after) ? privateReceipts(this.database, userId, undefined, after, upTo) : [],
    ]);
    return Map.groupBy([...shown, ...own.filter(({ roomId }) => roomIds.has(roomId))], ({ roomId }) => roomId);
  }

  /**
   * Receipts of rooms that a client hears of anew: the newest public ones, up to 250 of each room, and all of the user's
   * own; by room and oldest first, in one query.
   */
  async forRooms(userId: string, roomIds: readonly string[], upTo: number): Promise<Map<string, StoredReceipt[]>> {
    if (roomIds.length === 0) return new Map();
    const receipts = await newestReceipts(this.database, userId, roomIds, upTo, newestPerRoom);
    return Map.groupBy(receipts, ({ roomId }) => roomId);
  }

  /**
   * Receipts of rooms of which a client is shown some events: the public ones for those events, and all of the user's own;
   * by room and oldest first, in one query. Its cost does not grow with how many have read the rooms.
   */
  async forEvents(
    userId: string,
    roomIds: readonly string[],
    eventIds: readonly string[],
    upTo: number,
  ): Promise<Map<string, StoredReceipt[]>> {
    if (roomIds.length === 0) return new Map();
    const receipts = await receiptsOfEvents(this.database, userId, roomIds, eventIds, upTo);
    const wanted = new Set(roomIds);
    return Map.groupBy(
      receipts.filter(({ roomId }) => wanted.has(roomId)),
      ({ roomId }) => roomId,
    );
  }

  /** A user's own receipts in rooms, of both types. */
  own(userId: string, roomIds: readonly string[]): Promise<StoredReceipt[]> {
    return roomIds.length === 0 ? Promise.resolve([]) : receiptsOf(this.database, userId, roomIds);
  }

  /**
   * Sets markers of a local user in one room, all or none.
   * @throws MatrixError 400 `M_INVALID_PARAM` (event id or thread), 403 `M_FORBIDDEN` (not in the room), 404 `M_NOT_FOUND`
   *   (the room has no such event), 413 `M_TOO_LARGE` (the user's account data have no place for the marker)
   */
  async setByClient(requester: Requester, roomId: string, markers: readonly MarkerRequest[]): Promise<void> {
    const { userId } = requester;
    if (!(await this.audience.localMembers(roomId)).has(userId)) throw MatrixError.notInRoom();
    const receipts: Receipt[] = [];
    let fullyRead: { readonly stored: StoredEvent; readonly mayGoBack: boolean } | undefined;
    for (const { type, eventId, threadId, mayGoBack } of markers) {
      const thread = checkThreadId(type, threadId);
      const stored = await this.#event(roomId, eventId);
      if (type === 'm.fully_read') fullyRead = { stored, mayGoBack: mayGoBack ?? false };
      else {
        if (thread !== undefined && !(await this.#isInThread(stored, thread)))
          throw MatrixError.invalidParam('The event is not in that thread');
        const { streamOrdering: eventStreamOrdering } = stored;
        receipts.push({ roomId, type, userId, eventId, threadId: thread, ts: this.clock.nowMs(), eventStreamOrdering });
      }
    }
    // First the marker: there may be no place for it.
    if (fullyRead) await this.#moveFullyRead(requester, roomId, fullyRead.stored, fullyRead.mayGoBack);
    await this.store(receipts);
  }

  /**
   * Stores receipts of any users, passing over those who have read further; for other servers' too, once checked.
   * @returns those that were news
   */
  async store(receipts: readonly Receipt[]): Promise<readonly StoredReceipt[]> {
    if (receipts.length === 0) return [];
    const audiences = await this.audience.ofRooms(new Set(receipts.map(({ roomId }) => roomId)));
    const stored = await this.database.write(
      async (tx) => {
        // The room may have been deleted since the request came. Before positions are taken, for which others may wait.
        const there = await this.events.holdRooms(tx, [...new Set(receipts.map(({ roomId }) => roomId))]);
        const ids = await this.stream.allocateIn(tx, receipts.length);
        const placed = receipts
          .map((receipt, index): StoredReceipt => ({ ...receipt, position: ids[index] ?? 0 }))
          .filter(({ roomId }) => there.has(roomId));
        // Together, so that they travel to the database in one go.
        const kept = await Promise.all(placed.map((receipt) => upsertReceipt(tx, receipt)));
        const news = placed.filter((_, index) => kept[index]);
        if (news.length === 0) return news;
        await this.hooks.receiptsInTransaction(tx, news);
        for (const receipt of news) this.#announce(tx, receipt, audiences.get(receipt.roomId) ?? new Set());
        return news;
      },
      { name: 'receipts', anyProcess: this.stream.isWrittenHere },
    );
    const local = stored.filter((receipt) => domainOf(receipt.userId) === this.config.serverName);
    if (local.length > 0) this.#tell(local);
    return stored;
  }

  /** Other servers, and badges: what cannot be told is news for a moment only. */
  #tell(receipts: readonly StoredReceipt[]): void {
    if (!this.database.isBesideWriter) return this.hooks.receiptsSent(receipts);
    this.stream.atWriter(receiptsSent, receipts).catch((err: unknown) => {
      this.logger.debug('Nobody could be told what was read', { err });
    });
  }

  #announce(tx: Tx, { type, roomId, userId, position }: StoredReceipt, members: ReadonlySet<string>): void {
    const isPrivate = type === 'm.read.private';
    this.stream.announceIn(tx, position, {
      changed: isPrivate ? { user: [userId] } : { room: [roomId] },
      users: isPrivate ? [userId] : members,
    });
  }

  async #event(roomId: string, eventId: string): Promise<StoredEvent> {
    if (!isValidEventId(eventId)) throw MatrixError.invalidParam('Not a valid event id');
    const stored = await this.events.one(eventId);
    if (stored?.event.roomId !== roomId || !isServable(stored))
      throw MatrixError.notFound('The room has no such event');
    return stored;
  }

  /** @spec client-server-api#threaded-read-receipts */
  async #isInThread(stored: StoredEvent, threadId: string): Promise<boolean> {
    // A thread's root is in the thread and in the main timeline.
    if (stored.event.eventId === threadId) return true;
    let current: StoredEvent | undefined = stored;
    for (let step = 0; current !== undefined && step < maxRelationSteps; step++) {
      const relation = relationOf(current.event.content);
      if (relation === undefined) break;
      if (relation.type === 'm.thread') return relation.eventId === threadId;
      current = await this.events.one(relation.eventId);
      if (current?.event.eventId === threadId) return true;
    }
    return threadId === 'main';
  }

  async #moveFullyRead(requester: Requester, roomId: string, stored: StoredEvent, mayGoBack: boolean): Promise<void> {
    const { userId } = requester;
    const { eventId } = stored.event;
    const isNews = async (before: unknown, db?: Db): Promise<boolean> => {
      if (typeof before !== 'string') return true;
      if (before === eventId) return false;
      if (mayGoBack) return true;
      const marked = (await this.events.many([before], db)).get(before);
      return marked === undefined || marked.streamOrdering < stored.streamOrdering;
    };
    // Most that is no news is so by the first look. Of two that come at once the one that is further back may be the last to be stored.
    if (!(await isNews((await this.accountData.find(userId, roomId, 'm.fully_read'))?.['event_id']))) return;
    await this.accountData.changeInRoom(
      userId,
      roomId,
      'm.fully_read',
      async (tx, before) => ((await isNews(before['event_id'], tx)) ? { event_id: eventId } : before),
      { requester },
    );
  }
}

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function checkThreadId(type: MarkerType, threadId: unknown): string | undefined {
  if (threadId === undefined) return undefined;
  if (type === 'm.fully_read') throw MatrixError.invalidParam('The fully-read marker has no thread');
  if (typeof threadId !== 'string' || threadId === '' || Buffer.byteLength(threadId) > longestThreadIdBytes)
    throw MatrixError.invalidParam("'thread_id' must be a non-empty string");
  if (threadId !== 'main' && !isValidEventId(threadId))
    throw MatrixError.invalidParam("'thread_id' must be 'main' or an event id");
  return threadId;
}
