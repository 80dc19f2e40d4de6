import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { isJsonObject, isValidUserId, type JsonObject, MatrixError, maxIdBytes } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { UserHooks } from '../hooks.js';
import { holdAccount } from '../store/account-hold.query.js';
import {
  type AccountDataRow,
  changedTypes,
  findForRoom,
  findGlobal,
  forRooms,
  globalChanges,
  globalCount,
  highestStreamId,
  ignoredBy,
  ignorersOf,
  lockForRoom,
  lockGlobal,
  replaceIgnored,
  type RoomAccountDataRow,
  roomChanges,
  roomCount,
  sizeOf,
  typesOfRooms,
  writeForRoom,
  writeGlobal,
} from './account-data.query.js';
import { LargePieces, parsedContents, partsOf } from './large-pieces.js';

/** Largest content of one piece as JSON, bytes. */
const largestContentBytes = 1_048_576;
/** Most types that an account has of its own, and in one room. */
const maxTypes = 2_000;
const maxTypesPerRoom = 500;
/** What a piece counts beside its content, bytes: however small pieces are, there is an end to them. */
const bytesOfPiece = 512;
const maxIgnored = 10_000;
/** Most tags that a room has for one user. */
const maxTags = 200;
const largestTagBytes = 4_096;
/** Types that clients change by endpoints of their own. */
const controlled = new Set(['m.fully_read', 'm.push_rules']);

/** Changes of account data, by user. */
export const accountDataStream = defineStream({
  name: 'account_data',
  takenUpTo: highestStreamId,
  anyProcess: true,
  keys: { user: {} },
});

/** A piece of account data whose content another lib keeps (push rules). */
export type AccountDataSource = (userId: string) => Promise<JsonObject>;

/** Which types are to be read: these, or those that pass; all unless told. */
export type WantedTypes = readonly string[] | ((type: string) => boolean);

/** What a write makes of a piece. */
interface Change {
  /** Its JSON; `undefined` where there was none. */
  readonly before: string | undefined;
  readonly content: Readonly<JsonObject>;
  /** The JSON of the content. */
  readonly text: string;
}

/**
 * What users keep at the server for their clients: of the account, and of single rooms; tags are among the latter. The
 * stream `account_data` numbers all changes.
 */
@Injectable()
export class AccountDataService {
  /** What pieces hold, in their order; much is parsed in several turns of the event loop. */
  static readonly parsedContents = parsedContents;
  /** Pieces in parts, each of which is written or parsed in a turn of the event loop; of none no part. */
  static readonly partsOf = partsOf;

  readonly stream: Stream<'user'>;
  readonly #sources = new Map<string, AccountDataSource>();
  readonly #changes: ChangedKeys;
  readonly #large: LargePieces;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly hooks: UserHooks,
    private readonly modules: AccountModules,
    streams: Streams,
  ) {
    this.#large = new LargePieces(database);
    this.stream = streams.of(accountDataStream);
    this.#changes = this.stream.changes('user');
    // It went with the account when that was closed, of which nobody was told: whoever remembers it has to look again.
    hooks.reactivated.subscribe({
      inTransaction: async (tx, { userId }) =>
        void (await this.stream.write(tx, { changed: { user: [userId] }, users: [userId] })),
    });
  }

  /** Serves a type of the account's own data from elsewhere. */
  serve(type: string, source: AccountDataSource): void {
    this.#sources.set(type, source);
  }

  /** Whether a piece is there: with MSC3391, and only with it, an empty one was deleted, of which those hear who had it. */
  isKept({ content }: Pick<AccountDataRow, 'content'>): boolean {
    return content !== '{}' || !this.config.get('experimental_features.msc3391_enabled');
  }

  /** Whether anything changed for the user since a position; `false` is certain. Costs no query. */
  hasChanged(userId: string, since: number): boolean {
    return this.#changes.hasChanged(userId, since);
  }

  /** The account's own data that changed in `(after, upTo]`, oldest first. */
  changes(userId: string, after: number, upTo: number, wanted?: WantedTypes): Promise<readonly AccountDataRow[]> {
    const db = this.database;
    return this.#large.read(userId, 'account_data', async () => {
      const types = await typesOf(wanted, () => changedTypes(db, 'account_data', userId, after, upTo));
      return types?.length === 0 ? [] : globalChanges(db, userId, after, upTo, types);
    });
  }

  /** The data of rooms that changed in `(after, upTo]`, oldest first. */
  roomChanges(
    userId: string,
    after: number,
    upTo: number,
    wanted?: WantedTypes,
  ): Promise<readonly RoomAccountDataRow[]> {
    const db = this.database;
    return this.#large.read(userId, 'room_account_data', async () => {
      const types = await typesOf(wanted, () => changedTypes(db, 'room_account_data', userId, after, upTo));
      return types?.length === 0 ? [] : roomChanges(db, userId, after, upTo, types);
    });
  }

  /** All data of some rooms, oldest first, for rooms that a client hears of for the first time. */
  forRooms(userId: string, roomIds: readonly string[], wanted?: WantedTypes): Promise<readonly RoomAccountDataRow[]> {
    const db = this.database;
    return this.#large.read(userId, 'room_account_data', async () => {
      const types = await typesOf(wanted, () => typesOfRooms(db, userId, roomIds));
      return types?.length === 0 ? [] : forRooms(db, userId, roomIds, types);
    });
  }

  /** One piece, of the account or of a room; `undefined` when there is none. */
  async find(userId: string, roomId: string | undefined, type: string): Promise<JsonObject | undefined> {
    checkType(type);
    const source = roomId === undefined ? this.#sources.get(type) : undefined;
    if (source) return source(userId);
    const text =
      roomId === undefined
        ? await findGlobal(this.database, userId, type)
        : await findForRoom(this.database, userId, roomId, type);
    return text === undefined ? undefined : (JSON.parse(text) as JsonObject);
  }

  /**
   * Sets one piece from a client.
   * @throws MatrixError 405 `M_BAD_JSON` (kept by another endpoint), 413 `M_TOO_LARGE`, 400 `M_INVALID_PARAM`, 403 `M_USER_DEACTIVATED`
   */
  async setByClient(
    userId: string,
    roomId: string | undefined,
    type: string,
    content: JsonObject,
    origin: Origin,
  ): Promise<void> {
    if (controlled.has(type)) throw MatrixError.controlledAccountData(`'${type}' cannot be set here`);
    await this.set(userId, roomId, type, content, origin);
  }

  /**
   * Sets one piece; with MSC3391 `{}` deletes it.
   * @throws MatrixError 413 `M_TOO_LARGE`, 400 `M_INVALID_PARAM`, 403 `M_USER_DEACTIVATED`
   */
  async set(
    userId: string,
    roomId: string | undefined,
    type: string,
    content: JsonObject,
    origin: Origin,
  ): Promise<void> {
    checkType(type);
    const text = textOf(content);
    const ignored = roomId === undefined && type === 'm.ignored_user_list' ? ignoredIn(userId, content) : undefined;
    const position = await this.#write(userId, roomId, type, origin, async (tx) => {
      let before: string | undefined;
      if (roomId === undefined) {
        before = await findGlobal(tx, userId, type);
        if (before === undefined && (await globalCount(tx, userId)) >= maxTypes)
          throw MatrixError.tooLarge('Too many types of account data');
        if (ignored) await replaceIgnored(tx, userId, ignored);
      } else before = await findOrFits(tx, userId, roomId, type);
      return { before, content, text };
    });
    // Whom an event concerns is judged where it is stored, from memory.
    if (ignored) await this.stream.heardAtWriter(position);
  }

  /**
   * Changes a piece of the account's own by what it is just now: of several at a time none undoes another.
   * @param change the content for one that is there; the same one where nothing is to change
   * @throws MatrixError 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   */
  async change(
    userId: string,
    type: string,
    change: (before: Readonly<JsonObject>) => Readonly<JsonObject>,
    origin: Origin,
  ): Promise<void> {
    const known = (await this.find(userId, undefined, type)) ?? {};
    if (change(known) === known) return;
    await this.#write(userId, undefined, type, origin, async (tx) => {
      const before = await lockGlobal(tx, userId, type, '{}');
      const content = change(JSON.parse(before ?? '{}') as JsonObject);
      return { before, content, text: textOf(content) };
    });
  }

  /**
   * The same for a piece of a room, where what it is to be depends on more than what it is. `change` is asked while nobody, in whatever
   * process, changes the piece, and may read.
   * @throws MatrixError 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   */
  async changeInRoom(
    userId: string,
    roomId: string,
    type: string,
    change: (tx: Tx, before: Readonly<JsonObject>) => Promise<Readonly<JsonObject>>,
    origin: Origin,
  ): Promise<void> {
    await this.#write(userId, roomId, type, origin, async (tx) => {
      await findOrFits(tx, userId, roomId, type);
      const before = await lockForRoom(tx, userId, roomId, type, '{}');
      const content = await change(tx, JSON.parse(before ?? '{}') as JsonObject);
      return { before, content, text: textOf(content) };
    });
  }

  /** The tags of a room, by name. */
  async tags(userId: string, roomId: string): Promise<JsonObject> {
    const content = await this.find(userId, roomId, 'm.tag');
    return isJsonObject(content?.['tags']) ? content['tags'] : {};
  }

  /**
   * Sets one tag of a room, or removes it (`undefined`).
   * @throws MatrixError 400 `M_INVALID_PARAM`, 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   */
  async setTag(
    userId: string,
    roomId: string,
    tag: string,
    value: JsonObject | undefined,
    origin: Origin,
  ): Promise<void> {
    checkType(tag);
    if (value && Buffer.byteLength(JSON.stringify(value)) > largestTagBytes)
      throw MatrixError.tooLarge('The tag is too large');
    await this.#write(userId, roomId, 'm.tag', origin, async (tx) => {
      const before = await lockForRoom(tx, userId, roomId, 'm.tag', '{"tags":{}}');
      const known: unknown = JSON.parse(before ?? '{}');
      const tags = new Map(Object.entries(isJsonObject(known) && isJsonObject(known['tags']) ? known['tags'] : {}));
      if (value === undefined) tags.delete(tag);
      else if (tags.has(tag) || tags.size < maxTags) tags.set(tag, value);
      else throw MatrixError.tooLarge('Too many tags on this room');
      const content = { tags: Object.fromEntries(tags) };
      return { before, content, text: JSON.stringify(content) };
    });
  }

  /** The users whom somebody ignores. */
  ignoredBy(userId: string): Promise<string[]> {
    return ignoredBy(this.database, userId);
  }

  /** Who of `among` ignores a user. */
  ignorersOf(userId: string, among: readonly string[]): Promise<string[]> {
    return ignorersOf(this.database, userId, among);
  }

  async #write(
    userId: string,
    roomId: string | undefined,
    type: string,
    origin: Origin,
    change: (tx: Tx) => Promise<Change>,
  ): Promise<number> {
    const event = await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        if (roomId !== undefined) await this.hooks.roomDataChanging.inTransaction(tx, { userId, roomId, type });
        const streamId = await this.stream.write(tx, { changed: { user: [userId] }, users: [userId] });
        const { before, content, text } = await change(tx);
        if (roomId === undefined) await writeGlobal(tx, userId, type, text, streamId);
        else await writeForRoom(tx, userId, roomId, type, text, streamId);
        const isMore = before === undefined || Buffer.byteLength(text) > Buffer.byteLength(before);
        // What the server itself notes of a user always has room: it is little, and nobody could note it later.
        if (isMore && origin.requester !== undefined) await this.#assertFits(tx, userId);
        const changed = { userId, roomId, type, content, streamId };
        await this.hooks.accountDataChanged.inTransaction(tx, changed);
        return changed;
      },
      { name: 'account_data', anyProcess: this.stream.isWrittenHere },
    );
    await this.hooks.accountDataChanged.afterCommit(event);
    if (type !== 'm.tag') await this.modules.accountDataUpdated(userId, roomId, type, event.content, origin);
    return event.streamId;
  }

  /** Whether all that the account has is not too much. @throws MatrixError 413 `M_TOO_LARGE` */
  async #assertFits(tx: Tx, userId: string): Promise<void> {
    const { pieces, bytes } = await sizeOf(tx, userId);
    const most = this.config.get('max_account_data_size');
    if (bytes + pieces * bytesOfPiece > most)
      throw MatrixError.tooLarge(`All account data of a user may not be larger than ${most} bytes`);
  }
}

/** Of which types something is read; `undefined`: of all. @param find the types that there are */
async function typesOf(
  wanted: WantedTypes | undefined,
  find: () => Promise<string[]>,
): Promise<readonly string[] | undefined> {
  return typeof wanted === 'function' ? (await find()).filter(wanted) : wanted;
}

/** A piece of a room, which may have one type more of a user where there is none. @throws MatrixError 413 `M_TOO_LARGE` */
async function findOrFits(tx: Tx, userId: string, roomId: string, type: string): Promise<string | undefined> {
  const known = await findForRoom(tx, userId, roomId, type);
  if (known === undefined && (await roomCount(tx, userId, roomId)) >= maxTypesPerRoom)
    throw MatrixError.tooLarge('Too many types of account data in this room');
  return known;
}

/** @throws MatrixError 413 `M_TOO_LARGE` */
function textOf(content: Readonly<JsonObject>): string {
  const text = JSON.stringify(content);
  if (Buffer.byteLength(text) > largestContentBytes)
    throw MatrixError.tooLarge(`Account data may not be larger than ${largestContentBytes} bytes`);
  return text;
}

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function checkType(type: string): void {
  if (type === '' || type.includes('\0') || !type.isWellFormed() || Buffer.byteLength(type) > maxIdBytes)
    throw MatrixError.invalidParam(`A name of 1 to ${maxIdBytes} bytes is needed`);
}

function ignoredIn(userId: string, content: JsonObject): string[] {
  const { ignored_users: users } = content;
  if (!isJsonObject(users)) return [];
  const ids = Object.keys(users).filter((id) => isValidUserId(id) && id !== userId);
  if (ids.length > maxIgnored) throw MatrixError.tooLarge(`Not more than ${maxIgnored} users can be ignored`);
  return ids;
}
