import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  type ClaimedKeys,
  e2eeLimits,
  E2eePorts,
  type KeyRoom,
  type KnownRemoteKeys,
  type RemoteDeviceKeys,
  type RemoteKeysAnswer,
  type RemoteKeySource,
} from '@rookery/e2ee';
import { FederationClient } from '@rookery/federation-client';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Clock, Logger, Metrics, ownTurn } from '@rookery/platform';
import { noRoomForKeys, RemoteDeviceLists } from './remote-device-lists.js';
import { sharingUsers } from './remote-device-lists.query.js';

/** Largest answer of another server, bytes: of one user or to one claim, and what each further user adds, who may have as many devices. */
const firstUserBytes = 1_048_576;
const furtherUserBytes = 65_536;
/** What is weighed of an answer in one turn of the event loop, bytes. */
const weighedPerTurnBytes = 262_144;
/** Lists that one question asks for one by one, to keep them up to date at once; of more they are kept later. */
const maxAsked = 5;
const maxDevices = 1_000;
/** What came in time is to be given before whoever asks gives up: this part of the time earlier, and no more than so much; milliseconds. */
const reserveShare = 10;
const longestReserveMs = 500;

/**
 * Brings keys of other servers' users: device lists that are kept up to date from here, everything else from there, in one
 * request for each server.
 */
@Injectable()
export class FederationKeySource implements RemoteKeySource, OnModuleInit {
  readonly #count;

  constructor(
    private readonly ports: E2eePorts,
    private readonly client: FederationClient,
    private readonly lists: RemoteDeviceLists,
    private readonly database: Database,
    private readonly logger: Logger,
    private readonly clock: Clock,
    metrics: Metrics,
  ) {
    this.#count = metrics.counter('synapse_federation_client_sent_queries');
  }

  onModuleInit(): void {
    this.ports.remoteKeys.give(this);
  }

  async known(devices: Readonly<Record<string, readonly string[]>>, room: KeyRoom): Promise<KnownRemoteKeys> {
    const { userIds, leftOut, ...kept } = await this.lists.tracked(Object.keys(devices), room);
    return { ...asked(devices, [kept]), userIds, leftOut };
  }

  async query(
    serverName: string,
    devices: Readonly<Record<string, readonly string[]>>,
    timeoutMs: number,
    room: KeyRoom,
  ): Promise<RemoteKeysAnswer> {
    const userIds = Object.keys(devices);
    const sharing = await sharingUsers(this.database, userIds);
    const single = sharing.size <= maxAsked ? userIds.filter((userId) => sharing.has(userId)) : [];
    const others = userIds.filter((userId) => !single.includes(userId));
    const limitMs = timeoutMs - Math.min(timeoutMs / reserveShare, longestReserveMs);
    const results = await this.#inTime<RemoteKeysAnswer>(limitMs, [
      ...single.map((userId) => this.lists.ask(userId, limitMs, room)),
      ...(others.length > 0 ? [this.#queryThere(serverName, devices, others, limitMs, room)] : []),
    ]);
    if (single.length === 0)
      this.lists.wanted([...sharing]).catch((error: unknown) => {
        this.logger.warn('Device lists could not be marked as wanted', { err: error });
      });
    const told = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    const failure: unknown =
      results.find((result) => result.status === 'rejected')?.reason ??
      told.find((answer) => answer.failure !== undefined)?.failure;
    if (told.length === 0) throw failure;
    return { ...asked(devices, told), ...(failure !== undefined && { failure }) };
  }

  /** What comes of questions by then. A list for which somebody else asks already may take longer than was given here. */
  async #inTime<T>(limitMs: number, questions: readonly Promise<T>[]): Promise<PromiseSettledResult<T>[]> {
    const over = new AbortController();
    const late = this.clock.sleep(limitMs, over.signal).then(() => Promise.reject(new Error('No answer came in time')));
    const results = await Promise.allSettled(questions.map((question) => Promise.race([question, late])));
    over.abort();
    return results;
  }

  async claim(
    serverName: string,
    wanted: Readonly<Record<string, Readonly<Record<string, string>>>>,
    timeoutMs: number,
    room: KeyRoom,
  ): Promise<ClaimedKeys> {
    const devicesAsked = Object.values(wanted).reduce((count, devices) => count + Object.keys(devices).length, 0);
    const more = options(timeoutMs, devicesAsked, room);
    this.#count.inc({ type: 'client_one_time_keys' });
    const path = '/_matrix/federation/v1/user/keys/claim';
    const answer = await this.client.postJson(serverName, path, { one_time_keys: wanted }, more);
    const scales = new Scales(room);
    const claimed: Record<string, Record<string, JsonObject>> = {};
    // Only what was asked for, by own keys: another server may have chosen a name that every object knows.
    for (const [userId, devices] of entriesOf(answer['one_time_keys'])) {
      if (!Object.hasOwn(wanted, userId)) continue;
      const right = entriesOf(devices).filter(([id, keys]) => Object.hasOwn(wanted[userId]!, id) && scales.take(keys));
      if (right.length > 0) claimed[userId] = Object.fromEntries(right) as Record<string, JsonObject>;
      await scales.rest();
    }
    return claimed;
  }

  async #queryThere(
    serverName: string,
    devices: Readonly<Record<string, readonly string[]>>,
    userIds: readonly string[],
    timeoutMs: number,
    room: KeyRoom,
  ): Promise<RemoteKeysAnswer> {
    const more = options(timeoutMs, userIds.length, room);
    this.#count.inc({ type: 'client_device_keys' });
    const body = { device_keys: Object.fromEntries(userIds.map((userId) => [userId, [...(devices[userId] ?? [])]])) };
    const path = '/_matrix/federation/v1/user/keys/query';
    const answer = await this.client.postJson(serverName, path, body, more);
    const scales = new Scales(room);
    const found: Record<string, Record<string, JsonObject>> = {};
    for (const [userId, theirs] of entriesOf(answer['device_keys']).slice(0, userIds.length)) {
      if (!Object.hasOwn(devices, userId)) continue;
      // A device is who it says, or nobody.
      const right = entriesOf(theirs)
        .slice(0, maxDevices)
        .filter(([id, keys]) => isOf(userId, keys) && keys['device_id'] === id && scales.take(keys));
      found[userId] = Object.fromEntries(right) as Record<string, JsonObject>;
      await scales.rest();
    }
    const [masters, selfs] = ['master_keys', 'self_signing_keys'].map((kind) =>
      Object.fromEntries(
        entriesOf(answer[kind])
          .slice(0, userIds.length)
          .filter(([userId, key]) => isOf(userId, key) && scales.take(key)),
      ),
    ) as [Record<string, JsonObject>, Record<string, JsonObject>];
    return {
      ...{ device_keys: found, master_keys: masters, self_signing_keys: selfs },
      ...(!scales.hadRoom && { failure: noRoomForKeys() }),
    };
  }
}

/** Weighs what another server has answered: what is too large for a key is none, and what there is no room for is not kept. */
class Scales {
  #weighedBytes = 0;
  /** Whether there was room for all. */
  hadRoom = true;

  constructor(private readonly room: KeyRoom) {}

  /** Whether a key is kept. */
  take(key: unknown): key is JsonObject {
    if (!isJsonObject(key)) return false;
    const bytes = Buffer.byteLength(JSON.stringify(key));
    this.#weighedBytes += bytes;
    if (bytes > e2eeLimits.keyBytes) return false;
    if (this.room.take(bytes)) return true;
    this.hadRoom = false;
    return false;
  }

  /** Lets others have their turn, where much was weighed in this one. */
  async rest(): Promise<void> {
    if (this.#weighedBytes < weighedPerTurnBytes) return;
    this.#weighedBytes = 0;
    await ownTurn();
  }
}

/**
 * @param count users asked about, or devices of whom a key is wanted
 * @throws Error when there is no room for an answer
 */
function options(timeoutMs: number, count: number, { leftBytes }: KeyRoom) {
  if (leftBytes < e2eeLimits.keyBytes) throw noRoomForKeys();
  const maxBytes = Math.min(firstUserBytes + (count - 1) * furtherUserBytes, leftBytes);
  return { timeoutMs, maxBytes, retries: 'none', awaited: true } as const;
}

const entriesOf = (value: unknown): [string, unknown][] => (isJsonObject(value) ? Object.entries(value) : []);

const isOf = (userId: string, keys: unknown): keys is JsonObject => isJsonObject(keys) && keys['user_id'] === userId;

/** What was asked for of several answers, and nothing else. */
function asked(
  wanted: Readonly<Record<string, readonly string[]>>,
  answers: readonly RemoteDeviceKeys[],
): RemoteDeviceKeys {
  const all: Required<RemoteDeviceKeys> = { device_keys: {}, master_keys: {}, self_signing_keys: {} };
  const devices: Record<string, Record<string, JsonObject>> = {};
  for (const answer of answers) {
    for (const [userId, theirs] of Object.entries(answer.device_keys)) {
      if (!Object.hasOwn(wanted, userId)) continue;
      const ids = new Set(wanted[userId]);
      devices[userId] =
        ids.size === 0 ? { ...theirs } : Object.fromEntries(Object.entries(theirs).filter(([id]) => ids.has(id)));
    }
    for (const kind of ['master_keys', 'self_signing_keys'] as const)
      Object.assign(
        all[kind],
        Object.fromEntries(Object.entries(answer[kind] ?? {}).filter(([userId]) => Object.hasOwn(wanted, userId))),
      );
  }
  return { ...all, device_keys: devices };
}
