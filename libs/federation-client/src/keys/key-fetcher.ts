import { VerifyKey } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { type Clock, type Config, KeyedSemaphore, type Logger, Semaphore, settingError } from '@rookery/platform';
import type { FederationClient } from '../requests/federation-client.js';
import { isSignedBy, readServerKeys, type ServerKeysStatement } from './server-keys.js';

/** Keys that are wanted: by server, by key id, until when they should hold (milliseconds since the epoch). */
export type WantedKeys = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** What a server said, and who told it. */
export interface ToldStatement {
  readonly statement: ServerKeysStatement;
  /** The server itself, or a notary. */
  readonly from: string;
}

interface Notary {
  readonly serverName: string;
  /** `undefined`: its answers are believed by its certificate alone. */
  readonly keys: ReadonlyMap<string, VerifyKey> | undefined;
}

const originTimeoutMs = 10_000;
const notaryTimeoutMs = 20_000;
const maxOriginBytes = 32_768;
const maxNotaryBytes = 8_388_608;
const maxServersPerQuery = 100;
/** With more servers than this, notaries are asked first: one request, and no waiting for those that are gone. */
const fewServers = 8;
/** Servers that are asked at once: about themselves, or for what this server has begun. */
const parallelFetches = 64;
const maxWaiting = 2_000;
/**
 * The same for servers that others have named, apart from those above: nobody's own key waits for names that may be made up. A quarter
 * for each that names them: as many as a transaction of a large room has, more or less.
 */
const parallelNamed = 128;
const namedBySame = 32;
/** How long they are waited for, milliseconds: some of those named before them may say nothing until their time is over. */
const namedPatienceMs = 30_000;

/** Asks servers for their keys, and notaries for the keys of others. Nothing is kept here. */
export class KeyFetcher {
  readonly #notaries: readonly Notary[];
  readonly #places = new Semaphore(parallelFetches, { maxWaiting });
  readonly #namedPlaces = new Semaphore(parallelNamed, { maxWaiting });
  /** By who has named the servers. */
  readonly #shares = new KeyedSemaphore(namedBySame);

  /** @throws SettingsError for a key of `trusted_key_servers` that is none */
  constructor(
    config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly client: FederationClient,
  ) {
    this.#notaries = config
      .get('trusted_key_servers')
      .filter(({ server_name }) => server_name !== config.serverName)
      .map(({ server_name, verify_keys }) => ({
        serverName: server_name,
        keys: pinnedKeys(config, server_name, verify_keys),
      }));
  }

  /**
   * Looks for keys, until nothing is left that somebody might know. Never throws: what cannot be had is missing.
   * @param mayAskNotaries whether notaries may be asked about a server now; it is called for those about which they would be
   * @param namedBy the server that has named these, without being asked to; it has a share of the places, and no more
   * @returns in no order; may hold several statements of one server
   */
  async fetch(
    wanted: WantedKeys,
    mayAskNotaries: (serverName: string) => Promise<boolean>,
    namedBy?: string,
  ): Promise<ToldStatement[]> {
    const told: ToldStatement[] = [];
    const askNotaries = async (): Promise<ToldStatement[]> => {
      const asked = new Map<string, ReadonlyMap<string, number>>();
      for (const [serverName, ids] of missing(wanted, told))
        if (await mayAskNotaries(serverName)) asked.set(serverName, ids);
      return this.#fromNotaries(asked);
    };
    const ask = [() => this.#fromOrigins(missing(wanted, told), namedBy), askNotaries];
    if (wanted.size > fewServers) ask.reverse();
    for (const one of ask) {
      if (missing(wanted, told).size > 0) told.push(...(await one()));
    }
    return told;
  }

  /**
   * What a server says about its keys now; `undefined` when it cannot be had.
   * @param namedBy as for {@link fetch}
   */
  async fromOrigin(serverName: string, namedBy?: string): Promise<ServerKeysStatement | undefined> {
    try {
      if (namedBy === undefined)
        return await this.#places.run(() => this.#ask(serverName), { signal: AbortSignal.timeout(originTimeoutMs) });
      const waiting = { signal: AbortSignal.timeout(namedPatienceMs) };
      const inPlace = (): Promise<ServerKeysStatement | undefined> =>
        this.#namedPlaces.run(() => this.#ask(serverName), waiting);
      return await this.#shares.run(namedBy, inPlace, waiting);
    } catch (error) {
      this.logger.debug('The keys of a server cannot be had from it', { server: serverName, err: error });
      return undefined;
    }
  }

  async #ask(serverName: string): Promise<ServerKeysStatement | undefined> {
    const answer = await this.client.requestExactJson({
      ...{ destination: serverName, method: 'GET', path: '/_matrix/key/v2/server', retries: 'none' },
      // Its signature is in front of us: it lives, whatever was before.
      ...{ timeoutMs: originTimeoutMs, maxBytes: maxOriginBytes, ignoreBackoff: true },
    });
    const statement = readServerKeys(answer, serverName, this.clock.nowMs());
    if (statement === undefined) this.logger.warn('A server published unusable keys', { server: serverName });
    return statement;
  }

  async #fromOrigins(wanted: WantedKeys, namedBy: string | undefined): Promise<ToldStatement[]> {
    const statements = await Promise.all([...wanted.keys()].map((serverName) => this.fromOrigin(serverName, namedBy)));
    return statements
      .filter((statement) => statement !== undefined)
      .map((statement) => ({ statement, from: statement.serverName }));
  }

  async #fromNotaries(wanted: WantedKeys): Promise<ToldStatement[]> {
    const told: ToldStatement[] = [];
    for (const notary of this.#notaries) {
      const left = [...missing(wanted, told)];
      for (let i = 0; i < left.length; i += maxServersPerQuery) {
        told.push(...(await this.#fromNotary(notary, new Map(left.slice(i, i + maxServersPerQuery)))));
      }
    }
    return told;
  }

  async #fromNotary({ serverName, keys }: Notary, wanted: WantedKeys): Promise<ToldStatement[]> {
    const server_keys = Object.fromEntries(
      [...wanted].map(([server, ids]) => [
        server,
        Object.fromEntries([...ids].map(([keyId, untilTs]) => [keyId, { minimum_valid_until_ts: untilTs }])),
      ]),
    );
    let answer: JsonObject;
    try {
      answer = await this.client.requestExactJson({
        ...{ destination: serverName, method: 'POST', path: '/_matrix/key/v2/query', content: { server_keys } },
        ...{ timeoutMs: notaryTimeoutMs, maxBytes: maxNotaryBytes, retries: 'short' },
      });
    } catch (error) {
      this.logger.info('A trusted key server does not answer', { server: serverName, err: error });
      return [];
    }
    const list = Array.isArray(answer['server_keys']) ? (answer['server_keys'] as unknown[]) : [];
    const nowTs = this.clock.nowMs();
    const told: ToldStatement[] = [];
    // It may know several statements of one server, from different times: together they hold all keys.
    for (const object of list.slice(0, 10 * maxServersPerQuery)) {
      if (!isJsonObject(object)) continue;
      const subject = object['server_name'];
      if (typeof subject !== 'string' || !wanted.has(subject)) continue;
      if (keys !== undefined && !isSignedBy(object, serverName, keys)) {
        this.logger.warn('A trusted key server sent keys without its signature', { server: serverName, subject });
        continue;
      }
      const statement = readServerKeys(object, subject, nowTs);
      if (statement !== undefined) told.push({ statement, from: serverName });
    }
    return told;
  }
}

/** What is still wanted: keys that nobody told, or not for long enough. */
function missing(wanted: WantedKeys, told: readonly ToldStatement[]): Map<string, ReadonlyMap<string, number>> {
  const left = new Map(wanted);
  for (const { statement } of told) {
    const ids = left.get(statement.serverName);
    if (ids === undefined) continue;
    const open = [...ids].filter(([keyId, untilTs]) => (statement.keys.get(keyId)?.validUntilTs ?? -1) < untilTs);
    if (open.length === 0) left.delete(statement.serverName);
    else left.set(statement.serverName, new Map(open));
  }
  return left;
}

function pinnedKeys(
  config: Config,
  serverName: string,
  texts: Readonly<Record<string, string>> | undefined,
): Map<string, VerifyKey> | undefined {
  if (texts === undefined || Object.keys(texts).length === 0) return undefined;
  return new Map(
    Object.entries(texts).map(([keyId, text]) => {
      const key = VerifyKey.parse(text);
      if (key !== undefined && keyId.startsWith('ed25519:')) return [keyId, key];
      const message = `the key ${keyId} of ${serverName} is not an Ed25519 key in base64`;
      throw settingError(config, 'trusted_key_servers', [], message);
    }),
  );
}
