import type { Database } from '@rookery/database';
import {
  type KeyLookup,
  type KnownKey,
  parseJson,
  requiredSigners,
  type RoomEvent,
  type SignatureVerdict,
  signingKeyIds,
  type VerifyKey,
  verifyEventSignatures,
  verifyJson,
} from '@rookery/events';
import { LeakyBucketRateLimiter } from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Cache, type Clock, type Config, eachLimit, ownTurn } from '@rookery/platform';
import type { KeyFetcher, ToldStatement, WantedKeys } from './key-fetcher.js';
import type { OwnKeys } from '../signing/own-keys.js';
import {
  statementTexts,
  type StoredStatement,
  storedKeys,
  storedStatements,
  storeStatements,
} from './server-key.query.js';
import type { ServerKey } from './server-keys.js';

/**
 * How long a server is not asked again for its keys, milliseconds: as long as nobody notices who waits for a new one, and long
 * enough that nobody with made-up signatures can have it asked much.
 */
const askedAgainMs = 1_000;
/** The same for what others want to be told, and for asking trusted key servers about it: they are asked by everybody. */
const toldAgainMs = 30_000;
/**
 * Servers about which trusted key servers are asked because one server has named them, in a burst and in a second: in its name they would
 * look for any number of made-up ones. Of the others their own word is all that counts.
 */
const askedInNameOf = { burstCount: 1_000, perSecond: 5 };
/** Most servers in one look-up; more are not looked for. */
const maxServers = 10_000;
const maxKeyIdLength = 136;
/** Events whose signatures are checked at once, on other threads. */
const verifiedAtOnce = 16;
/** Most signatures of an object that are looked at. */
const maxSignatures = 8;

/** What a ring is made of. */
export interface KeyRingParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly database: Database;
  readonly fetcher: KeyFetcher;
  readonly own: OwnKeys;
}

type Found = Map<string, Map<string, ServerKey>>;

/** Makes a request to another server in the name of somebody who may ask for no more than so many; `undefined` where it is not made. */
export type AskWithin = <T>(serverName: string, ask: () => Promise<T>) => Promise<T | undefined>;

/** Servers that are asked side by side for one who wants to hear of many. */
const parallelRefreshes = 8;
/** Servers whose statements are read before others get a turn. */
const serversPerTurn = 10;
/** Statements of one server that are told where nobody asks for certain keys: the newest names all that it uses. */
const toldOfServer = 3;
/** Bytes of one server's statements that are told, unless the first of them is larger; what servers say of themselves is smaller. */
const toldBytes = 65_536;

/**
 * The keys of other servers: from memory, from the database, from the servers themselves, from trusted key servers. Many
 * look-ups of one server make one request. A key that cannot be had is `undefined`, never an error.
 */
export class KeyRing {
  readonly #known: Cache<string, ServerKey>;
  /** Servers that were asked lately, or about which others were, and when. */
  readonly #asked: Cache<string, { readonly atMs: number }>;
  readonly #askedOthers: Cache<string, { readonly atMs: number }>;
  /** By server, and who has named it. */
  readonly #asking = new Map<string, Promise<Found>>();
  readonly #inNameOf: LeakyBucketRateLimiter;

  constructor(private readonly parts: KeyRingParts) {
    this.#known = new Cache(parts.config, 'server_keys', { invalidation: 'expires', max: 20_000 });
    this.#asked = new Cache(parts.config, 'server_keys_asked', { invalidation: 'expires', max: 20_000 });
    this.#askedOthers = new Cache(parts.config, 'server_keys_asked_others', { invalidation: 'expires', max: 20_000 });
    this.#inNameOf = new LeakyBucketRateLimiter(parts.clock, () => askedInNameOf);
  }

  /**
   * A key of a server.
   * @param minimumValidUntilTs milliseconds since the epoch: a key that holds for less is asked for again, and given back
   *   as it is when there is nothing newer
   */
  async keyOf(serverName: string, keyId: string, minimumValidUntilTs: number): Promise<KnownKey | undefined> {
    if (serverName === this.parts.own.serverName) return this.parts.own.known(keyId);
    if (!isLookedFor(serverName, keyId)) return undefined;
    const known = this.#known.get(cacheKey(serverName, keyId));
    if (known !== undefined && known.validUntilTs >= minimumValidUntilTs) return known;
    const found = await this.#find(new Map([[serverName, new Map([[keyId, minimumValidUntilTs]])]]));
    return found.get(serverName)?.get(keyId);
  }

  /** A key of a server as it is kept, without asking anybody. */
  async keptKey(serverName: string, keyId: string): Promise<KnownKey | undefined> {
    if (!isLookedFor(serverName, keyId)) return undefined;
    const known = this.#known.get(cacheKey(serverName, keyId));
    if (known !== undefined) return known;
    const stored = await storedKeys(this.parts.database, [serverName], [keyId]);
    const key = stored.get(serverName)?.find((one) => one.keyId === keyId);
    if (key !== undefined) this.#known.set(cacheKey(serverName, keyId), key);
    return key;
  }

  /**
   * The key by which a server replaced one under the same id, for a signature that the kept one does not fit; `undefined` when it
   * did not. The server is asked, once a second at most.
   * @param before the kept one
   */
  async replacementOf(serverName: string, keyId: string, before: VerifyKey): Promise<KnownKey | undefined> {
    if (!isLookedFor(serverName, keyId) || serverName === this.parts.own.serverName) return undefined;
    const asking =
      this.#asking.get(serverName) ??
      (this.#mayAsk(this.#asked, serverName, askedAgainMs)
        ? this.#begin([serverName], this.#toldByItself(serverName), undefined)
        : undefined);
    await asking;
    const now = await this.keptKey(serverName, keyId);
    return now === undefined || now.key.equals(before) ? undefined : now;
  }

  /**
   * Whether every server that must have signed an event did, by the rules of its room version.
   * @param sender as for {@link verifyEvents}
   */
  async verifyEvent(event: RoomEvent, sender?: string): Promise<SignatureVerdict> {
    const [verdict] = await this.verifyEvents([event], sender);
    return verdict!;
  }

  /**
   * {@link verifyEvent} for many: the keys of all are looked for together. Verdicts in the order of the events.
   * @param sender the server from which they came, where it decides what is in them: it has only so much looked for of the servers that
   *   it names, and nobody else waits for those
   */
  async verifyEvents(events: readonly RoomEvent[], sender?: string): Promise<SignatureVerdict[]> {
    const wanted = new Map<string, Map<string, number>>();
    for (const event of events) {
      const untilTs = neededUntil(event);
      for (const serverName of requiredSigners(event))
        for (const keyId of signingKeyIds(event, serverName)) this.#want(wanted, serverName, keyId, untilTs);
    }
    const found = await this.#find(wanted, sender);
    const lookup: KeyLookup = (serverName, keyId) =>
      serverName === this.parts.own.serverName ? this.parts.own.known(keyId) : found.get(serverName)?.get(keyId);
    const verdicts: SignatureVerdict[] = [];
    // Some at a time: enough for all threads, and not so many that whatever else needs a thread waits long.
    for (let start = 0; start < events.length; start += verifiedAtOnce) {
      const some = events.slice(start, start + verifiedAtOnce);
      verdicts.push(...(await Promise.all(some.map((event) => verifyEventSignatures(event, lookup)))));
    }
    return verdicts;
  }

  /**
   * Whether an object carries a valid signature of a server, by a key that holds until a time.
   * @param object anything
   */
  async verifyJson(serverName: string, object: unknown, minimumValidUntilTs: number): Promise<boolean> {
    const signatures = isJsonObject(object) ? object['signatures'] : undefined;
    const ofServer =
      isJsonObject(signatures) && Object.hasOwn(signatures, serverName) ? signatures[serverName] : undefined;
    if (!isJsonObject(ofServer)) return false;
    for (const keyId of Object.keys(ofServer).slice(0, maxSignatures)) {
      const known = await this.keyOf(serverName, keyId, minimumValidUntilTs);
      if (known === undefined || known.validUntilTs < minimumValidUntilTs) continue;
      if (verifyJson(object, serverName, keyId, known.key)) return true;
    }
    return false;
  }

  /**
   * Asks servers for their keys of which something is wanted that is not kept, does not hold long enough or is past half its time. A
   * server that does not answer is told of as it was.
   * @param wanted a server without key ids: what it says of itself
   * @param untilTs until when whatever a server says of itself has to hold, milliseconds since the epoch
   * @param within makes each request to another server, or does not: whoever asks may be a stranger. Default: each
   */
  async renew(wanted: WantedKeys, untilTs = 0, within: AskWithin = (_, ask) => ask()): Promise<void> {
    const servers = this.#others(wanted);
    const kept = await this.#stored(servers);
    const stale = servers.filter((name) =>
      this.#isStale(kept.get(name) ?? [], name, wanted.get(name) ?? new Map(), untilTs),
    );
    await eachLimit(stale, parallelRefreshes, (name) => this.#refresh(name, within));
  }

  /**
   * What servers said about their keys, with their signatures, to be passed on: as it is kept, and no more of it than anybody needs.
   * @param wanted a server without key ids: what was said last of it
   */
  async statements(wanted: WantedKeys): Promise<JsonObject[]> {
    const servers = this.#others(wanted);
    const kept = await this.#stored(servers);
    const statements: JsonObject[] = [];
    for (let start = 0; start < servers.length; start += serversPerTurn) {
      const told = servers
        .slice(start, start + serversPerTurn)
        .flatMap((name) => statementsOf(kept.get(name) ?? [], name, [...(wanted.get(name)?.keys() ?? [])]));
      if (told.length === 0) continue;
      // Several keys may have come with one statement.
      for (const text of new Set(await statementTexts(this.parts.database, told))) {
        await ownTurn();
        const statement = parseJson(text);
        if (isJsonObject(statement)) statements.push(statement);
      }
    }
    return statements;
  }

  #others(wanted: WantedKeys): string[] {
    return [...wanted.keys()].filter((name) => isValidServerName(name) && name !== this.parts.own.serverName);
  }

  /** What is kept of servers, by server. */
  async #stored(servers: readonly string[]): Promise<Map<string, StoredStatement[]>> {
    const stored: StoredStatement[] = [];
    for (let start = 0; start < servers.length; start += serversPerTurn) {
      if (start > 0) await ownTurn();
      stored.push(...(await storedStatements(this.parts.database, servers.slice(start, start + serversPerTurn))));
    }
    return Map.groupBy(stored, ({ serverName }) => serverName);
  }

  #isStale(
    kept: readonly StoredStatement[],
    serverName: string,
    ids: ReadonlyMap<string, number>,
    untilTs: number,
  ): boolean {
    const own = kept.filter((one) => one.fromServer === serverName);
    const nowTs = this.parts.clock.nowMs();
    const halfOver = (one: StoredStatement): boolean => (one.addedTs + one.validUntilTs) / 2 < nowTs;
    if (own.every(halfOver) || own.every(({ validUntilTs }) => validUntilTs < untilTs)) return true;
    return [...ids].some(([keyId, untilTs]) => !own.some((one) => one.keyId === keyId && one.validUntilTs >= untilTs));
  }

  async #refresh(serverName: string, within: AskWithin): Promise<void> {
    if (!this.#mayAsk(this.#asked, serverName, toldAgainMs)) return;
    await this.#keep((await within(serverName, () => this.#toldByItself(serverName))) ?? []);
  }

  async #toldByItself(serverName: string): Promise<readonly ToldStatement[]> {
    const statement = await this.parts.fetcher.fromOrigin(serverName);
    return statement === undefined ? [] : [{ statement, from: serverName }];
  }

  #want(wanted: Map<string, Map<string, number>>, serverName: string, keyId: string, untilTs: number): void {
    if (serverName === this.parts.own.serverName || !isValidServerName(serverName) || keyId.length > maxKeyIdLength)
      return;
    let ids = wanted.get(serverName);
    if (ids === undefined) {
      if (wanted.size >= maxServers) return;
      wanted.set(serverName, (ids = new Map()));
    }
    ids.set(keyId, Math.max(ids.get(keyId) ?? 0, untilTs));
  }

  /** Everything that can be found of what is wanted, as good as it can be had. */
  async #find(wanted: WantedKeys, sender?: string): Promise<Found> {
    const found: Found = new Map();
    const put = (serverName: string, key: ServerKey): void => {
      let keys = found.get(serverName);
      if (keys === undefined) found.set(serverName, (keys = new Map()));
      keys.set(key.keyId, key);
    };
    const open = (from: WantedKeys): Map<string, ReadonlyMap<string, number>> =>
      new Map(
        [...from].flatMap(([serverName, ids]): [string, ReadonlyMap<string, number>][] => {
          const left = [...ids].filter(
            ([keyId, untilTs]) => (found.get(serverName)?.get(keyId)?.validUntilTs ?? -1) < untilTs,
          );
          return left.length === 0 ? [] : [[serverName, new Map(left)]];
        }),
      );

    for (const [serverName, ids] of wanted) {
      for (const keyId of ids.keys()) {
        const known = this.#known.get(cacheKey(serverName, keyId));
        if (known !== undefined) put(serverName, known);
      }
    }
    let left = open(wanted);
    if (left.size === 0) return found;
    const keyIds = new Set([...left.values()].flatMap((ids) => [...ids.keys()]));
    const stored = await storedKeys(this.parts.database, [...left.keys()], [...keyIds]);
    for (const [serverName, keys] of stored) {
      for (const key of keys) {
        put(serverName, key);
        this.#known.set(cacheKey(serverName, key.keyId), key);
      }
    }
    left = open(left);
    if (left.size === 0) return found;
    for (const answer of await Promise.all(this.#ask(left, sender)))
      for (const [serverName, keys] of answer) for (const key of keys.values()) put(serverName, key);
    return found;
  }

  /** Answers to everything that is wanted: of those that the sender has named apart from all else. */
  #ask(wanted: WantedKeys, sender: string | undefined): Promise<Found>[] {
    if (sender === undefined) return this.#askAs(wanted, undefined);
    const named = new Map(wanted);
    const ofItself = new Map([...wanted].filter(([serverName]) => serverName === sender));
    named.delete(sender);
    return [...this.#askAs(ofItself, undefined), ...this.#askAs(named, sender)];
  }

  /** One request for everything that nobody asks for already; and the answers to what others ask for. */
  #askAs(wanted: WantedKeys, namedBy: string | undefined): Promise<Found>[] {
    const answers = new Set<Promise<Found>>();
    const mine = new Map<string, ReadonlyMap<string, number>>();
    for (const [serverName, ids] of wanted) {
      const name = askingKey(serverName, namedBy);
      const running = this.#asking.get(name);
      if (running !== undefined) answers.add(running);
      else if (this.#mayAsk(this.#asked, name, askedAgainMs)) mine.set(serverName, ids);
    }
    if (mine.size > 0) {
      // For each reason apart, as the servers themselves: nobody else waits for the answer.
      const mayAskNotaries = async (serverName: string): Promise<boolean> =>
        this.#mayAsk(this.#askedOthers, askingKey(serverName, namedBy), toldAgainMs) &&
        (namedBy === undefined || (await this.#mayAskInNameOf(namedBy)));
      answers.add(this.#begin([...mine.keys()], this.parts.fetcher.fetch(mine, mayAskNotaries, namedBy), namedBy));
    }
    return [...answers];
  }

  async #mayAskInNameOf(serverName: string): Promise<boolean> {
    try {
      await this.#inNameOf.take('notaries', serverName);
      return true;
    } catch (error) {
      if (MatrixError.is(error)) return false;
      throw error;
    }
  }

  /** What is told of servers is kept; until then whoever wants their keys for the same reason waits for that. */
  #begin(
    servers: readonly string[],
    told: Promise<readonly ToldStatement[]>,
    namedBy: string | undefined,
  ): Promise<Found> {
    const names = servers.map((serverName) => askingKey(serverName, namedBy));
    const asking = told
      .then((statements) => this.#keep(statements))
      .finally(() => {
        for (const name of names) this.#asking.delete(name);
      });
    for (const name of names) this.#asking.set(name, asking);
    return asking;
  }

  /** Whether nobody was asked about a server within a time; from now on somebody was. */
  #mayAsk(asked: Cache<string, { readonly atMs: number }>, serverName: string, againMs: number): boolean {
    const nowMs = this.parts.clock.monotonicMs();
    const before = asked.get(serverName);
    if (before !== undefined && nowMs - before.atMs < againMs) return false;
    asked.set(serverName, { atMs: nowMs });
    return true;
  }

  /** Keeps what was told, in the database and in memory; the keys as they count from now on. */
  async #keep(told: readonly ToldStatement[]): Promise<Found> {
    const found: Found = new Map();
    if (told.length === 0) return found;
    const { database, clock } = this.parts;
    await database.write((tx) => storeStatements(tx, told, clock.nowMs()), { name: 'server_keys' });
    const servers = [...new Set(told.map(({ statement }) => statement.serverName))];
    const keyIds = [...new Set(told.flatMap(({ statement }) => [...statement.keys.keys()]))];
    // What the database made of it: a notary's word may not have counted.
    for (const [serverName, keys] of await storedKeys(database, servers, keyIds)) {
      found.set(serverName, new Map(keys.map((key) => [key.keyId, key])));
      for (const key of keys) this.#known.set(cacheKey(serverName, key.keyId), key);
    }
    return found;
  }
}

const isLookedFor = (serverName: string, keyId: string): boolean =>
  isValidServerName(serverName) && keyId.startsWith('ed25519:') && keyId.length <= maxKeyIdLength;

const cacheKey = (serverName: string, keyId: string): string => `${serverName} ${keyId}`;

/** Who has named servers may have named any number of silent ones: nobody else waits for what is asked in its name. */
const askingKey = (serverName: string, namedBy: string | undefined): string =>
  namedBy === undefined ? serverName : `${serverName} ${namedBy}`;

/** Until when a key must hold to count for an event. */
const neededUntil = (event: RoomEvent): number => (event.rules.keyValidityEnforced ? event.originServerTs : 0);

/** Which statements of a server are told: its own before those told by others, the newest of them. */
function statementsOf(
  kept: readonly StoredStatement[],
  serverName: string,
  keyIds: readonly string[],
): StoredStatement[] {
  const ofServer = kept
    .filter((one) => keyIds.length === 0 || keyIds.includes(one.keyId))
    .toSorted((left, right) => right.addedTs - left.addedTs);
  const told: StoredStatement[] = [];
  /** Those that may be different ones. */
  const statements = new Set<string>();
  const ids = new Set<string>();
  let bytes = 0;
  for (const own of [true, false]) {
    for (const one of ofServer) {
      if ((one.fromServer === serverName) !== own || ids.has(one.keyId)) continue;
      const name = `${one.fromServer} ${one.addedTs} ${one.validUntilTs} ${one.sizeBytes}`;
      const isAnother = !statements.has(name);
      if (isAnother) {
        if (keyIds.length === 0 && statements.size >= toldOfServer) continue;
        if (bytes > 0 && bytes + one.sizeBytes > toldBytes) continue;
        statements.add(name);
        bytes += one.sizeBytes;
      }
      ids.add(one.keyId);
      if (isAnother || keyIds.length > 0) told.push(one);
    }
  }
  return told;
}
