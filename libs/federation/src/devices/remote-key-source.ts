import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  type ClaimedKeys,
  E2eePorts,
  type RemoteDeviceKeys,
  type RemoteKeysAnswer,
  type RemoteKeySource,
} from '@rookery/e2ee';
import { FederationClient } from '@rookery/federation-client';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Clock, Logger, Metrics } from '@rookery/platform';
import { RemoteDeviceLists } from './remote-device-lists.js';
import { sharingUsers } from './remote-device-lists.query.js';

const maxAnswerBytes = 33_554_432;
/** Lists that one question asks for one by one, to keep them up to date at once; of more they are kept later. */
const maxAsked = 5;
const maxDevices = 1_000;
/** What is known here is to be given before whoever asks gives up: this part of the time earlier, and no more than so much; milliseconds. */
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

  async query(
    serverName: string,
    devices: Readonly<Record<string, readonly string[]>>,
    timeoutMs: number,
  ): Promise<RemoteKeysAnswer> {
    const { userIds: known, ...kept } = await this.lists.tracked(Object.keys(devices));
    const missing = Object.keys(devices).filter((userId) => !known.has(userId));
    if (missing.length === 0) return asked(devices, [kept]);
    const sharing = await sharingUsers(this.database, missing);
    const single = sharing.size <= maxAsked ? missing.filter((userId) => sharing.has(userId)) : [];
    const others = missing.filter((userId) => !single.includes(userId));
    const limitMs = timeoutMs - Math.min(timeoutMs / reserveShare, longestReserveMs);
    const results = await this.#inTime(limitMs, [
      ...single.map((userId) => this.lists.ask(userId, limitMs)),
      ...(others.length > 0 ? [this.#queryThere(serverName, devices, others, limitMs)] : []),
    ]);
    if (single.length === 0)
      this.lists.wanted([...sharing]).catch((error: unknown) => {
        this.logger.warn('Device lists could not be marked as wanted', { err: error });
      });
    const told = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
    const failure: unknown = results.find((result) => result.status === 'rejected')?.reason;
    if (known.size === 0 && told.length === 0) throw failure;
    return { ...asked(devices, [kept, ...told]), ...(failure !== undefined && { failure }) };
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
  ): Promise<ClaimedKeys> {
    this.#count.inc({ type: 'client_one_time_keys' });
    const path = '/_matrix/federation/v1/user/keys/claim';
    const answer = await this.client.postJson(serverName, path, { one_time_keys: wanted }, options(timeoutMs));
    const claimed: Record<string, Record<string, JsonObject>> = {};
    // Only what was asked for, by own keys: another server may have chosen a name that every object knows.
    for (const [userId, devices] of entriesOf(answer['one_time_keys'])) {
      if (!Object.hasOwn(wanted, userId)) continue;
      const right = entriesOf(devices).filter(([id, keys]) => Object.hasOwn(wanted[userId]!, id) && isJsonObject(keys));
      if (right.length > 0) claimed[userId] = Object.fromEntries(right) as Record<string, JsonObject>;
    }
    return claimed;
  }

  async #queryThere(
    serverName: string,
    devices: Readonly<Record<string, readonly string[]>>,
    userIds: readonly string[],
    timeoutMs: number,
  ): Promise<RemoteDeviceKeys> {
    this.#count.inc({ type: 'client_device_keys' });
    const body = { device_keys: Object.fromEntries(userIds.map((userId) => [userId, [...(devices[userId] ?? [])]])) };
    const path = '/_matrix/federation/v1/user/keys/query';
    const answer = await this.client.postJson(serverName, path, body, options(timeoutMs));
    const found: Record<string, Record<string, JsonObject>> = {};
    for (const [userId, theirs] of entriesOf(answer['device_keys']).slice(0, userIds.length)) {
      // A device is who it says, or nobody.
      const right = entriesOf(theirs)
        .slice(0, maxDevices)
        .filter(([id, keys]) => isJsonObject(keys) && keys['user_id'] === userId && keys['device_id'] === id);
      found[userId] = Object.fromEntries(right) as Record<string, JsonObject>;
    }
    return {
      device_keys: found,
      master_keys: keysOf(answer['master_keys']),
      self_signing_keys: keysOf(answer['self_signing_keys']),
    };
  }
}

const options = (timeoutMs: number) =>
  ({ timeoutMs, maxBytes: maxAnswerBytes, retries: 'none', awaited: true }) as const;

const entriesOf = (value: unknown): [string, unknown][] => (isJsonObject(value) ? Object.entries(value) : []);

function keysOf(keys: unknown): Record<string, JsonObject> {
  const right = entriesOf(keys).filter(([userId, key]) => isJsonObject(key) && key['user_id'] === userId);
  return Object.fromEntries(right) as Record<string, JsonObject>;
}

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
