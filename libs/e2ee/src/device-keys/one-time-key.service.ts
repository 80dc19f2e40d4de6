import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { domainOf, isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config } from '@rookery/platform';
import { type ChangedKeys, Invalidations, type Stream, Streams } from '@rookery/replication';
import { byServer, isName, limits } from '../common/limits.js';
import { type RemoteFailures, RemoteKeys } from '../common/remote-keys.js';
import type { ClaimedKeys } from '../ports.js';
import { ServiceKeys } from '../common/service-keys.js';
import { toDeviceStream } from '../to-device/to-device.service.js';
import {
  type ClaimedKey,
  claimOneTimeKeys,
  deleteClaimedKeys,
  fallbackAlgorithms,
  insertOneTimeKeys,
  type OfferedKey,
  oneTimeKeyCounts,
  oneTimeKeysById,
  unusedFallbackTypes,
  useFallbackKeys,
  type WantedKey,
  writeFallbackKeys,
} from './one-time-key.query.js';

/** How long a key that was handed out cannot be uploaded again. */
const rememberClaimedMs = 30 * 24 * 3_600_000;
const maxCounted = 50_000;

/** What a sync tells a device about its keys. */
export interface KeyCounts {
  /** One-time keys left, by algorithm; always with `signed_curve25519`, which clients look for. */
  readonly counts: Record<string, number>;
  /** Algorithms whose fallback key was never handed out. */
  readonly unusedFallbackTypes: readonly string[];
}

const deviceKey = (userId: string, deviceId: string): string => `${userId}\n${deviceId}`;

/** One-time and fallback keys. A one-time key is handed out once, whoever asks and how often. */
@Injectable()
export class OneTimeKeyService {
  readonly #counts: Cache<string, Promise<KeyCounts>>;
  readonly #stream: Stream<'device' | 'counts'>;
  readonly #changes: ChangedKeys;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly remote: RemoteKeys,
    private readonly services: ServiceKeys,
    private readonly invalidations: Invalidations,
    streams: Streams,
  ) {
    this.#counts = new Cache(config, 'one_time_key_counts', {
      invalidation: 'stream to_device',
      elsewhere: 'told',
      max: 2 * maxCounted,
    });
    this.#stream = streams.of(toDeviceStream);
    this.#changes = this.#stream.changes('counts');
    invalidations.on('one_time_key_counts', {
      forget: (keys) => keys.forEach((key) => this.#counts.delete(key)),
      forgetAll: () => this.#counts.clear(),
    });
  }

  /**
   * Whether the {@link counts} of a device may be news to a client that comes from a position of the to-device stream and goes to
   * another; `false` is certain. Counts are told as they are: where they changed again behind `upTo`, the answer that goes there
   * has the news, and whoever waits is woken for it.
   */
  mayHaveChanged(userId: string, deviceId: string, since: number, upTo: number): boolean {
    return this.#changes.hasChanged(deviceKey(userId, deviceId), since, upTo);
  }

  /** What a device has left. Costs no query while nothing changes. */
  counts(userId: string, deviceId: string): Promise<KeyCounts> {
    const key = deviceKey(userId, deviceId);
    const known = this.#counts.get(key);
    if (known) return known;
    const counting = this.#count(userId, deviceId);
    this.#counts.set(key, counting);
    counting.catch(() => {
      if (this.#counts.peek(key) === counting) this.#counts.delete(key);
    });
    return counting;
  }

  /**
   * Adds what a device uploads.
   * @throws MatrixError 400 `M_INVALID_PARAM` when another key has the same id, 413 `M_TOO_LARGE` when it has too many, or of too many
   *   algorithms
   */
  async store(
    tx: Tx,
    userId: string,
    deviceId: string,
    oneTimeKeys: readonly OfferedKey[],
    fallbackKeys: readonly OfferedKey[],
  ): Promise<void> {
    const fresh = oneTimeKeys.length > 0 ? await this.#freshOf(tx, userId, deviceId, oneTimeKeys) : [];
    const isNew = fresh.length > 0 || fallbackKeys.length > 0;
    if (isNew) await this.#checkRoom(tx, userId, deviceId, fresh, fallbackKeys);
    if (oneTimeKeys.length > 0) {
      const nowMs = this.clock.nowMs();
      await deleteClaimedKeys(tx, userId, deviceId, nowMs - rememberClaimedMs);
      if (fresh.length > 0) await insertOneTimeKeys(tx, userId, deviceId, fresh, nowMs);
    }
    if (fallbackKeys.length > 0) await writeFallbackKeys(tx, userId, deviceId, fallbackKeys);
    if (isNew) await this.#changed(tx, [{ userId, deviceId }]);
  }

  /** Forgets what is remembered about devices, once the transaction that changes their keys is durable. */
  forget(tx: Tx, userId: string, deviceIds: readonly string[]): void {
    tx.unlessRolledBack(() => {
      const keys = deviceIds.map((deviceId) => deviceKey(userId, deviceId));
      for (const key of keys) this.#counts.delete(key);
      this.invalidations.send('one_time_key_counts', keys);
    });
  }

  /**
   * Hands out a key of each device asked for: a one-time key where there is one, else the fallback key. Devices with neither
   * are absent.
   * @param wanted algorithms by user and device
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`
   * @spec client-server-api#post_matrixclientv3keysclaim
   */
  async claim(
    requesterId: string,
    wanted: JsonObject,
    timeoutMs: number,
  ): Promise<{ keys: ClaimedKeys; failures: RemoteFailures }> {
    const entries = wantedKeys(wanted);
    const here = entries.filter(([userId]) => domainOf(userId) === this.config.serverName);
    const elsewhere = entries.filter(([userId]) => domainOf(userId) !== this.config.serverName);
    if (elsewhere.length > 0) this.database.onlyAtWriter('keys of other servers');
    const [local, { answers, failures }] = await Promise.all([
      this.claimLocal(here),
      this.remote.claim(requesterId, byServer(elsewhere, domainOf), timeoutMs),
    ]);
    return { keys: Object.assign({}, ...answers, local) as ClaimedKeys, failures };
  }

  /**
   * The same for devices of local users, in one transaction of three statements. Where application services answer for their
   * users, they are asked before a fallback key is used.
   */
  async claimLocal(entries: readonly (readonly [string, Readonly<Record<string, string>>])[]): Promise<ClaimedKeys> {
    const wanted = entries.flatMap(([userId, devices]) =>
      Object.entries(devices).flatMap(([deviceId, algorithm]): WantedKey[] =>
        isName(deviceId) && isName(algorithm) ? [{ userId, deviceId, algorithm }] : [],
      ),
    );
    if (wanted.length === 0) return {};
    const { claim: ask } = this.services;
    // For both: were the second refused, whoever takes the request would claim what was claimed here once more.
    const anyProcess = this.#stream.isWrittenHere;
    const claimed = byDevice(await this.#take(wanted, { oneTime: true, fallback: !ask }, anyProcess));
    const missing = (): WantedKey[] => wanted.filter((key) => !claimed[key.userId]?.[key.deviceId]);
    if (!ask || missing().length === 0) return claimed;
    addTo(claimed, await ask(algorithmsByDevice(missing())));
    const left = missing();
    if (left.length > 0)
      addTo(claimed, byDevice(await this.#take(left, { oneTime: false, fallback: true }, anyProcess)));
    return claimed;
  }

  #take(
    wanted: readonly WantedKey[],
    from: { readonly oneTime: boolean; readonly fallback: boolean },
    anyProcess: boolean,
  ): Promise<readonly ClaimedKey[]> {
    return this.database.write(
      async (tx) => {
        const keys = from.oneTime ? await claimOneTimeKeys(tx, wanted, this.clock.nowMs()) : [];
        const served = new Set(keys.map((key) => deviceKey(key.userId, key.deviceId)));
        const rest = from.fallback ? wanted.filter((key) => !served.has(deviceKey(key.userId, key.deviceId))) : [];
        const all = rest.length > 0 ? keys.concat(await useFallbackKeys(tx, rest)) : keys;
        if (all.length > 0) await this.#changed(tx, all);
        return all;
      },
      { name: 'keys_claim', anyProcess },
    );
  }

  /** Key counts have no stream of their own: a change takes a place in that of to-device messages, and wakes the devices. */
  async #changed(tx: Tx, devices: readonly { readonly userId: string; readonly deviceId: string }[]): Promise<void> {
    for (const { userId, deviceId } of devices) this.forget(tx, userId, [deviceId]);
    await this.#stream.write(tx, {
      changed: { counts: devices.map(({ userId, deviceId }) => deviceKey(userId, deviceId)) },
      users: new Set(devices.map(({ userId }) => userId)),
    });
  }

  async #count(userId: string, deviceId: string): Promise<KeyCounts> {
    const [counts, unused] = await Promise.all([
      oneTimeKeyCounts(this.database, userId, deviceId),
      unusedFallbackTypes(this.database, userId, deviceId),
    ]);
    return {
      counts: { signed_curve25519: 0, ...Object.fromEntries(counts) },
      unusedFallbackTypes: unused,
    };
  }

  /** Those that are not there yet. */
  async #freshOf(tx: Tx, userId: string, deviceId: string, offered: readonly OfferedKey[]): Promise<OfferedKey[]> {
    const keyIds = offered.map((key) => key.keyId);
    const stored = new Map(
      (await oneTimeKeysById(tx, userId, deviceId, keyIds)).map((key) => [`${key.algorithm}:${key.keyId}`, key]),
    );
    return offered.filter(({ algorithm, keyId, keyJson }) => {
      const before = stored.get(`${algorithm}:${keyId}`);
      if (before === undefined) return true;
      if (before.keyJson === keyJson) return false;
      if (before.claimed) return true;
      throw MatrixError.invalidParam(`Another one-time key '${algorithm}:${keyId}' is there already`);
    });
  }

  /** A device that has more than it may, from before there were limits, may renew its fallback keys. */
  async #checkRoom(
    tx: Tx,
    userId: string,
    deviceId: string,
    fresh: readonly OfferedKey[],
    fallbackKeys: readonly OfferedKey[],
  ): Promise<void> {
    const held = await oneTimeKeyCounts(tx, userId, deviceId);
    let count = fresh.length;
    for (const ofAlgorithm of held.values()) count += ofAlgorithm;
    if (fresh.length > 0 && count > limits.heldKeys)
      throw MatrixError.tooLarge(`A device can have ${limits.heldKeys} one-time keys`);
    const known = new Set([...held.keys(), ...(await fallbackAlgorithms(tx, userId, deviceId))]);
    const algorithms = new Set([...known, ...[...fresh, ...fallbackKeys].map((key) => key.algorithm)]);
    if (algorithms.size > Math.max(limits.algorithms, known.size))
      throw MatrixError.tooLarge(`A device can have keys of ${limits.algorithms} algorithms`);
  }
}

type KeysByDevice = Record<string, Record<string, JsonObject>>;

function byDevice(keys: readonly ClaimedKey[]): KeysByDevice {
  const result: KeysByDevice = {};
  for (const { userId, deviceId, algorithm, keyId, keyJson } of keys) {
    const devices = (result[userId] ??= {});
    devices[deviceId] = { [`${algorithm}:${keyId}`]: JSON.parse(keyJson) as unknown };
  }
  return result;
}

function algorithmsByDevice(keys: readonly WantedKey[]): Record<string, Record<string, string>> {
  const result: Record<string, Record<string, string>> = {};
  for (const { userId, deviceId, algorithm } of keys) (result[userId] ??= {})[deviceId] = algorithm;
  return result;
}

function addTo(claimed: KeysByDevice, more: ClaimedKeys): void {
  for (const [userId, devices] of Object.entries(more)) claimed[userId] = { ...claimed[userId], ...devices };
}

function wantedKeys(wanted: JsonObject): (readonly [string, Readonly<Record<string, string>>])[] {
  let devices = 0;
  return Object.entries(wanted).map(([userId, algorithms]) => {
    if (!isValidUserId(userId)) throw MatrixError.invalidParam(`'${userId.slice(0, 255)}' is not a user id`);
    if (!isJsonObject(algorithms)) throw MatrixError.badJson("'one_time_keys' must hold algorithms by device");
    for (const [deviceId, algorithm] of Object.entries(algorithms)) {
      if (++devices > limits.claimedDevices)
        throw MatrixError.invalidParam(`Not more than ${limits.claimedDevices} keys can be claimed at once`);
      if (!isName(deviceId) || !isName(algorithm))
        throw MatrixError.badJson("'one_time_keys' must hold algorithms by device");
    }
    return [userId, algorithms as Record<string, string>] as const;
  });
}
