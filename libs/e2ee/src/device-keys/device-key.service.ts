import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, ownTurn } from '@rookery/platform';
import { MembershipReader } from '@rookery/rooms';
import { isName, limits } from '../common/limits.js';
import { RemoteKeys, type RemoteFailures } from '../common/remote-keys.js';
import { ServiceKeys } from '../common/service-keys.js';
import { CrossSigningService } from '../cross-signing/cross-signing.service.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { deviceKeysOf, devicesOfUsers } from './device-key.query.js';

/** Devices whose keys are read in one turn of the event loop. */
const devicesPerTurn = 1_000;

/** Keys of users, on the wire. */
export interface DeviceKeysAnswer {
  readonly device_keys: Record<string, Record<string, JsonObject>>;
  readonly master_keys: Record<string, JsonObject>;
  readonly self_signing_keys: Record<string, JsonObject>;
  /** Of the requester alone. */
  readonly user_signing_keys: Record<string, JsonObject>;
  readonly failures: RemoteFailures;
}

/** The part of it that this server knows. */
export type LocalKeys = Omit<DeviceKeysAnswer, 'failures'>;

/** Identity keys of users and devices, for clients and for other servers. */
@Injectable()
export class DeviceKeyService {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly deviceLists: DeviceListService,
    private readonly crossSigning: CrossSigningService,
    private readonly memberships: MembershipReader,
    private readonly remote: RemoteKeys,
    private readonly services: ServiceKeys,
  ) {}

  /**
   * Keys of users, here and elsewhere, as the requester may see them.
   * @param wanted device ids by user, an empty list for all
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`
   * @spec client-server-api#post_matrixclientv3keysquery
   */
  async query(requesterId: string, wanted: JsonObject, timeoutMs: number): Promise<DeviceKeysAnswer> {
    const entries = await this.#permitted(requesterId, wantedDevices(wanted));
    const here = entries.filter(([userId]) => domainOf(userId) === this.config.serverName);
    const elsewhere = entries.filter(([userId]) => domainOf(userId) !== this.config.serverName);
    if (elsewhere.length > 0) this.database.onlyAtWriter('keys of other servers');
    const [local, remote] = await Promise.all([
      this.#collect(new Map(here), requesterId),
      this.remote.query(requesterId, elsewhere, timeoutMs),
    ]);
    for (const answer of remote.answers) {
      Object.assign(local.device_keys, answer.device_keys);
      Object.assign(local.master_keys, answer.master_keys);
      Object.assign(local.self_signing_keys, answer.self_signing_keys);
    }
    await this.crossSigning.addSignatures(requesterId, local);
    return { ...local, failures: remote.failures };
  }

  /**
   * Keys of local users, as another server may see them. Users without keys have an empty entry.
   * @param wanted device ids by user, an empty list for all
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`
   */
  async forServer(wanted: ReadonlyMap<string, readonly string[]>): Promise<LocalKeys> {
    for (const deviceIds of wanted.values()) checkDevices(deviceIds);
    const answer = await this.#collect(wanted, undefined);
    await this.crossSigning.addSignatures(undefined, answer);
    if (!this.config.get('allow_device_name_lookup_over_federation')) {
      for (const devices of Object.values(answer.device_keys))
        for (const keys of Object.values(devices)) keys['unsigned'] = {};
    }
    return answer;
  }

  /** Those of some devices of local users that exist, with keys or without: user and device id with a line break between. */
  async existing(devices: readonly { readonly userId: string; readonly deviceId: string }[]): Promise<Set<string>> {
    if (devices.length === 0) return new Set();
    const rows = await devicesOfUsers(
      this.database,
      devices.map(({ userId }) => userId),
      devices.map(({ deviceId }) => deviceId),
    );
    return new Set(rows.map(({ userId, deviceId }) => `${userId}\n${deviceId}`));
  }

  /**
   * All devices of a local user that have keys, for another server.
   * @param told the position of the change of which the server was told last: what it is told next is said to follow upon that
   * @spec server-server-api#get_matrixfederationv1userdevicesuserid
   */
  async devicesForServer(userId: string, told?: number): Promise<JsonObject> {
    // Read first: a change that comes in between is told again rather than missed.
    const position = told ?? (await this.deviceLists.latest([userId])).get(userId) ?? 0;
    const {
      device_keys: devices,
      master_keys: masters,
      self_signing_keys: selfs,
    } = await this.forServer(new Map([[userId, []]]));
    return {
      user_id: userId,
      stream_id: position,
      devices: Object.entries(devices[userId] ?? {}).map(([deviceId, { unsigned, ...keys }]) => {
        const name = (unsigned as JsonObject)['device_display_name'];
        return { device_id: deviceId, keys, ...(typeof name === 'string' ? { device_display_name: name } : {}) };
      }),
      ...(masters[userId] === undefined ? {} : { master_key: masters[userId] }),
      ...(selfs[userId] === undefined ? {} : { self_signing_key: selfs[userId] }),
    };
  }

  /** Keys of local users without the signatures of others, in two queries; application services may answer for their users. */
  async #collect(wanted: ReadonlyMap<string, readonly string[]>, viewerId: string | undefined): Promise<LocalKeys> {
    const userIds = [...wanted.keys()];
    const answer: LocalKeys = {
      device_keys: Object.fromEntries(userIds.map((userId) => [userId, {}])),
      master_keys: {},
      self_signing_keys: {},
      user_signing_keys: {},
    };
    if (userIds.length === 0) return answer;
    const [rows, ofServices] = await Promise.all([
      deviceKeysOf(this.database, userIds),
      this.services.query?.(wanted),
      this.crossSigning.addKeys(userIds, viewerId, answer),
    ]);
    const named = new Map([...wanted].map(([userId, deviceIds]) => [userId, new Set(deviceIds)]));
    for (const [index, { userId, deviceId, keyJson, displayName }] of rows.entries()) {
      if (index % devicesPerTurn === devicesPerTurn - 1) await ownTurn();
      const devices = named.get(userId);
      if (devices && devices.size > 0 && !devices.has(deviceId)) continue;
      const keys = JSON.parse(keyJson) as JsonObject;
      keys['unsigned'] = displayName === undefined ? {} : { device_display_name: displayName };
      answer.device_keys[userId]![deviceId] = keys;
    }
    for (const [userId, devices] of Object.entries(ofServices ?? {}))
      answer.device_keys[userId] = { ...answer.device_keys[userId], ...withUnsigned(devices) };
    return answer;
  }

  /** MSC4263: where the server is set so, only users in a common room are asked about. */
  async #permitted(
    requesterId: string,
    entries: readonly (readonly [string, readonly string[]])[],
  ): Promise<readonly (readonly [string, readonly string[]])[]> {
    const limited = this.config.get('experimental_features.msc4263_limit_key_queries_to_users_who_share_rooms');
    const others = entries.map(([userId]) => userId).filter((userId) => userId !== requesterId);
    if (!limited || others.length === 0) return entries;
    const sharing = await this.memberships.sharing(requesterId, others);
    return entries.filter(([userId]) => userId === requesterId || sharing.has(userId));
  }
}

/** Devices as a service tells them, in the form of those that are stored here. */
function withUnsigned(devices: Readonly<Record<string, unknown>>): Record<string, JsonObject> {
  return Object.fromEntries(
    Object.entries(devices).flatMap(([deviceId, keys]) => {
      if (!isJsonObject(keys)) return [];
      const { unsigned } = keys;
      return [[deviceId, { ...keys, unsigned: isJsonObject(unsigned) ? unsigned : {} }]];
    }),
  );
}

function wantedDevices(wanted: JsonObject): (readonly [string, readonly string[]])[] {
  const entries = Object.entries(wanted);
  if (entries.length > limits.queriedUsers)
    throw MatrixError.invalidParam(`Not more than ${limits.queriedUsers} users can be asked about at once`);
  return entries.map(([userId, devices]) => {
    if (!isValidUserId(userId)) throw MatrixError.invalidParam(`'${userId.slice(0, 255)}' is not a user id`);
    return [userId, checkDevices(devices)] as const;
  });
}

function checkDevices(devices: unknown): readonly string[] {
  if (!Array.isArray(devices)) throw MatrixError.badJson("'device_keys' must hold lists of device ids");
  if (devices.length > limits.queriedDevices)
    throw MatrixError.invalidParam(
      `Not more than ${limits.queriedDevices} devices of a user can be asked about at once`,
    );
  if (!devices.every((deviceId) => isName(deviceId)))
    throw MatrixError.badJson("'device_keys' must hold lists of device ids");
  return devices as string[];
}
