import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import {
  DeviceListService,
  e2eeLimits,
  type KeyRoom,
  type KnownRemoteKeys,
  type RemoteDeviceKeys,
} from '@rookery/e2ee';
import { FederationClient, federationPath, FederationRequestError } from '@rookery/federation-client';
import { domainOf, isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import {
  type BackgroundTask,
  BackgroundTasks,
  batchesBySize,
  Clock,
  Config,
  eachLimit,
  KeyedMutex,
  Lifecycle,
  Logger,
  ownTurn,
} from '@rookery/platform';
import { type EventBatch, RoomHooks } from '@rookery/rooms';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  deleteResyncs,
  devicesOfUsers,
  forgetUsers,
  insertPending,
  isJoinedHere,
  isSharingHeld,
  keysOfUsers,
  mayBeInPartialRoom,
  membersBehind,
  otherDevicesOf,
  putDevice,
  putKeys,
  type RemoteDevice,
  type RemoteKey,
  replaceList,
  resyncsBehind,
  setPlace,
  sharingUsers,
  sizesOfLists,
  strangersAmong,
  takePending,
  trackedBehind,
  trackedUsers,
  wantResync,
} from './remote-device-lists.query.js';

/** Devices of one user, and bytes of them: as many as there may be, of the usual size. */
const maxDevices = 1_000;
const maxListBytes = 1_048_576;
const maxNameBytes = 512;
/** With the keys by which a user proves them. */
const maxKeptBytes = maxListBytes + 2 * e2eeLimits.keyBytes;
/** Of a list that is longer the rest is left out; of one that is longer than this, everything. */
const maxAnswerBytes = 2 * maxListBytes;
/** Kept lists that are read in one turn of the event loop, bytes. */
const readPerTurnBytes = 262_144;
const timeoutMs = 30_000;
/** Lists that are asked for side by side, and of one server. */
const parallel = 8;
const resyncEveryMs = 60_000;
const pageSize = 100;
/** Users who may share no room any more that are looked at in one turn. */
const usersPerTurn = 1_000;
/** Users whose news wait. */
const maxWaiting = 100;
const none = Promise.resolve();

/** How a list is asked for. */
interface Asking {
  readonly limitMs: number;
  /** A person waits for it. */
  readonly isAwaited: boolean;
  readonly signal?: AbortSignal;
}

/** Lists of users on the wire. */
interface RemoteLists {
  readonly device_keys: Record<string, Record<string, JsonObject>>;
  readonly master_keys: Record<string, JsonObject>;
  readonly self_signing_keys: Record<string, JsonObject>;
}

/** A list as its server told it. */
interface DeviceList {
  readonly streamId: string;
  readonly devices: readonly RemoteDevice[];
  readonly keys: readonly RemoteKey[];
}

/**
 * Devices of other servers' users. A list that was asked for is kept up to date by what its server tells, as long as the user
 * shares a room with somebody here; where something was missed it is asked for again.
 * @spec server-server-api#device-management
 */
@Injectable()
export class RemoteDeviceLists implements OnModuleInit {
  readonly #turns = new KeyedMutex({ maxWaiting, refuse: () => MatrixError.limitExceeded(2_000) });
  /** Users whose lists are being asked for; true when a change was told meanwhile. */
  readonly #asking = new Map<string, { changed: boolean; readonly list: Promise<DeviceList | undefined> }>();
  readonly #job: BackgroundTask;

  // Nine parameters: lists are fetched, kept and fetched again by one task, whose parts share what is under way.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly client: FederationClient,
    private readonly deviceLists: DeviceListService,
    private readonly hooks: RoomHooks,
    tasks: BackgroundTasks,
  ) {
    const name = 'resync_device_lists';
    const work = (signal: AbortSignal): Promise<void> => this.#resync(signal);
    this.#job = tasks.add({ name, role: 'writer', everyMs: resyncEveryMs, run: work });
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      inTransaction: (tx, batch) => this.#departed(tx, batch),
      onRoomPurged: (tx, roomId) => this.#purged(tx, roomId),
    });
    this.lifecycle.on('streams', {
      name: 'device lists of other servers',
      start: () => {
        this.#job.start();
        void this.#job.run();
      },
      stop: () => this.#job.stop(),
    });
  }

  /**
   * The lists that are kept up to date, of some users: on the wire, names included. Where there is no room for all, the shortest come
   * first.
   */
  async tracked(userIds: readonly string[], room: KeyRoom): Promise<KnownRemoteKeys> {
    // What was kept before there was a limit is asked for again.
    const sizes = [...(await sizesOfLists(this.database, userIds))].filter(([, bytes]) => bytes <= maxKeptBytes);
    const leftOut: string[] = [];
    const fitting = sizes
      .toSorted(([, a], [, b]) => a - b)
      .filter(([userId, bytes]) => {
        const fits = room.take(bytes);
        if (!fits) leftOut.push(userId);
        return fits;
      });
    const lists = noLists();
    for (const [index, part] of batchesBySize(fitting, ([, bytes]) => bytes, readPerTurnBytes).entries()) {
      if (index > 0) await ownTurn();
      const users = part.map(([userId]) => userId);
      const [devices, keys] = await Promise.all([
        devicesOfUsers(this.database, users),
        keysOfUsers(this.database, users),
      ]);
      addLists(lists, users, devices, keys);
    }
    return { ...lists, userIds: new Set(sizes.map(([userId]) => userId)), leftOut };
  }

  /**
   * Asks a user's server for the list, and keeps it up to date from then on if the user is in a room here.
   * @throws FederationRequestError
   * @throws Error when there is no room for it
   */
  async ask(userId: string, limitMs: number, room: KeyRoom): Promise<RemoteDeviceKeys> {
    const list = await this.#ask(userId, { limitMs, isAwaited: true });
    const lists = noLists();
    const [devices, keys] = [list?.devices ?? [], list?.keys ?? []];
    const texts = [...devices.map(({ content }) => content), ...keys.map(({ json }) => json)];
    if (!room.take(texts.reduce((bytes, text) => bytes + Buffer.byteLength(text), 0))) throw noRoomForKeys();
    addLists(lists, [userId], devices, keys);
    return lists;
  }

  /** Asks for lists in the background, so that they are at hand the next time. */
  async wanted(userIds: readonly string[]): Promise<void> {
    if (userIds.length === 0) return;
    await this.database.write((tx) => wantResync(tx, userIds, this.clock.nowMs()), { name: 'device_list_wanted' });
    void this.#job.run();
  }

  /** Content of `m.device_list_update`. @returns whether it left something that lasts */
  async receiveDevice(origin: string, content: JsonObject): Promise<boolean> {
    const { user_id: userId, device_id: deviceId, stream_id: streamId, prev_id: previous, deleted } = content;
    if (!isUserOf(origin, userId) || !isName(deviceId) || !Number.isSafeInteger(streamId)) return false;
    const device = deleted === true ? undefined : deviceIn(userId, content);
    // Without keys it is no device that anybody could write to: nothing but its name would be known.
    const isBare = content['keys'] === undefined;
    return this.#changed(userId, deviceId, async (tx, place) => {
      const isNext = follows(previous, place);
      // It came before, unless it follows upon another change of the same place.
      if (!isNext && place === String(streamId)) return true;
      if (!isNext || (deleted !== true && !isBare && device === undefined)) return false;
      await putDevice(tx, userId, deviceId, device && (await isInList(tx, device)) ? device.content : undefined);
      await setPlace(tx, userId, String(streamId));
      return true;
    });
  }

  /** Content of `m.signing_key_update`. @returns whether it left something that lasts */
  async receiveKeys(origin: string, content: JsonObject): Promise<boolean> {
    const { user_id: userId } = content;
    if (!isUserOf(origin, userId)) return false;
    const keys = keysIn(userId, content);
    if (keys.length === 0 || (await this.#hasKeys(userId, keys))) return false;
    return this.#changed(userId, '', async (tx) => {
      await putKeys(tx, userId, keys);
      return true;
    });
  }

  /** Whether these are the keys of a list that is kept: servers tell of them under two names. */
  async #hasKeys(userId: string, keys: readonly RemoteKey[]): Promise<boolean> {
    const known = await keysOfUsers(this.database, [userId]);
    return keys.every(({ keyType, json }) => known.some((key) => key.keyType === keyType && key.json === json));
  }

  /**
   * @param apply makes the change to a list that is kept; false when something before it was missed
   * @returns whether it concerns somebody here
   */
  #changed(userId: string, deviceId: string, apply: (tx: Tx, place: string) => Promise<boolean>): Promise<boolean> {
    return this.#turns.run(userId, async () => {
      // What concerns nobody here is not worth a row.
      if ((await sharingUsers(this.database, [userId])).size === 0) return this.#ofStranger(userId);
      const asking = this.#asking.get(userId);
      if (asking) asking.changed = true;
      const isComplete = await this.database.write(
        async (tx) => {
          if (!(await isSharingHeld(tx, userId))) {
            await forgetUsers(tx, [userId]);
            return true;
          }
          const place = (await trackedUsers(tx, [userId])).get(userId);
          await this.deviceLists.changed(tx, userId, [deviceId]);
          if (place === undefined || (await apply(tx, place))) return true;
          await forgetUsers(tx, [userId]);
          await wantResync(tx, [userId], this.clock.nowMs());
          return false;
        },
        { name: 'device_list_remote' },
      );
      if (!isComplete) void this.#job.run();
      return true;
    });
  }

  /** Of a list that was kept of somebody who shares no room any more this change would be missing. */
  async #ofStranger(userId: string): Promise<boolean> {
    if ((await trackedUsers(this.database, [userId])).size > 0)
      await this.database.write((tx) => this.#forgetStrangers(tx, [userId]), { name: 'device_list_forgotten' });
    return this.#postpone(userId);
  }

  /** Who may be in a room of which not all members are known is told of once they are. */
  async #postpone(userId: string): Promise<boolean> {
    if (!(await mayBeInPartialRoom(this.database, domainOf(userId)))) return false;
    await this.database.write((tx) => insertPending(tx, userId), { name: 'device_list_postponed' });
    return true;
  }

  #ask(userId: string, how: Asking): Promise<DeviceList | undefined> {
    const asking = this.#asking.get(userId);
    if (asking) return asking.list;
    const list = this.#fetch(userId, how)
      .then(async (found) => {
        await this.#keep(userId, found);
        return found;
      })
      .finally(() => this.#asking.delete(userId));
    this.#asking.set(userId, { changed: false, list });
    return list;
  }

  async #fetch(userId: string, { limitMs, isAwaited, signal }: Asking): Promise<DeviceList | undefined> {
    try {
      const path = federationPath`/_matrix/federation/v1/user/devices/${userId}`;
      const options = {
        timeoutMs: limitMs,
        maxBytes: maxAnswerBytes,
        retries: 'none',
        awaited: isAwaited,
        signal,
      } as const;
      return listIn(userId, await this.client.getJson(domainOf(userId), path, {}, options));
    } catch (error) {
      // There is no such user: no devices, and nothing to ask for again.
      if (error instanceof FederationRequestError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** Keeps a list that was asked for, unless it is out of date already. */
  #keep(userId: string, list: DeviceList | undefined): Promise<void> {
    return this.#turns.run(userId, async () => {
      const changed = this.#asking.get(userId)?.changed === true;
      await this.database.write(
        async (tx) => {
          if (list === undefined || !(await isSharingHeld(tx, userId))) await forgetUsers(tx, [userId]);
          else if (!changed) await replaceList(tx, userId, list.streamId, list.devices, list.keys);
          else await wantResync(tx, [userId], this.clock.nowMs());
        },
        { name: 'device_list_kept' },
      );
    });
  }

  /** Asks for lists again: a few at a time, of servers that can be reached. */
  async #resync(signal: AbortSignal): Promise<void> {
    const failed = new Set<string>();
    for (let after = ''; !signal.aborted;) {
      const page = await resyncsBehind(this.database, after, pageSize);
      const tryAgain = async (userId: string): Promise<void> => {
        if (!failed.has(domainOf(userId)) && !(await this.#tryAgain(userId, signal))) failed.add(domainOf(userId));
      };
      await eachLimit(page, parallel, tryAgain, { while: () => !signal.aborted });
      const last = page.at(-1);
      if (page.length < pageSize || last === undefined) return;
      after = last;
    }
  }

  /** @returns false when the server is not worth another question now */
  async #tryAgain(userId: string, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#ask(userId, { limitMs: timeoutMs, isAwaited: false, signal });
      return true;
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      if (error.retryable || error.reason === 'aborted') return false;
      // It does not want to tell, and would not later: whoever needs the keys asks anew.
      await this.database.write((tx) => deleteResyncs(tx, [userId]), { name: 'device_list_given_up' });
      this.logger.info('Another server does not tell the devices of a user', {
        user_id: userId,
        reason: error.message,
      });
      return true;
    }
  }

  /** Forgets the lists of users who share no room with anybody here any more: nobody would tell of changes. */
  #departed(tx: Tx, batch: EventBatch): Promise<void> {
    const { roomId, moves, room, backfilled, missedServers } = batch;
    if (backfilled) return none;
    if (missedServers !== undefined) return this.#completed(tx, batch);
    let left: string[] | undefined;
    let isEmpty = false;
    for (const { userId, membership, prevEventId } of moves) {
      if (membership === 'join' || prevEventId === undefined) continue;
      if (domainOf(userId) !== this.config.serverName) (left ??= []).push(userId);
      else if (room.localMembers.size === 0) isEmpty = true;
    }
    if (isEmpty) return this.#forgetStrangersIn(tx, roomId);
    return left === undefined ? none : this.#forgetStrangers(tx, left);
  }

  /** All members of a room are known now: some who were thought to be in it are not, and others are who changed meanwhile. */
  async #completed(tx: Tx, { roomId, room, moves, missedServers = [] }: EventBatch): Promise<void> {
    if (missedServers.length > 0) await this.deviceLists.repeat(tx, [...room.localMembers]);
    const known = moves.filter(({ prevEventId }) => prevEventId !== undefined).map(({ userId }) => userId);
    await this.#forgetStrangers(tx, known);
    const pending = await takePending(tx, roomId);
    await this.deviceLists.changedOf(
      tx,
      pending.map((userId) => ({ userId, deviceIds: [''] })),
    );
  }

  async #forgetStrangers(tx: Tx, userIds: readonly string[]): Promise<void> {
    const strangers = userIds.length > 0 ? await strangersAmong(tx, userIds) : [];
    if (strangers.length > 0) await forgetUsers(tx, strangers);
  }

  /** The same for all members of a room that nobody here is in any more. */
  #forgetStrangersIn(tx: Tx, roomId: string): Promise<void> {
    return this.#forgetEachStranger(tx, (after) => membersBehind(tx, roomId, after, usersPerTurn));
  }

  /** The room's members are known no longer. Where nobody here was among them, those were forgotten when the last one left. */
  async #purged(tx: Tx, roomId: string): Promise<void> {
    if (await isJoinedHere(tx, roomId))
      await this.#forgetEachStranger(tx, (after) => trackedBehind(tx, after, usersPerTurn));
  }

  async #forgetEachStranger(tx: Tx, usersBehind: (after: string) => Promise<readonly string[]>): Promise<void> {
    for (let after = ''; ; await nextTurn()) {
      const users = await usersBehind(after);
      await this.#forgetStrangers(tx, users);
      if (users.length < usersPerTurn) return;
      after = users.at(-1)!;
    }
  }
}

const isUserOf = (origin: string, userId: unknown): userId is string =>
  typeof userId === 'string' && isValidUserId(userId) && domainOf(userId) === origin;

const isName = (text: unknown): text is string =>
  typeof text === 'string' &&
  text !== '' &&
  Buffer.byteLength(text) <= 255 &&
  text.isWellFormed() &&
  !text.includes('\0');

/** Whether a change builds upon the last one that is known here. */
function follows(previous: unknown, place: string): boolean {
  if (!Array.isArray(previous) || previous.length === 0) return false;
  return previous.every((id: unknown) => String(id) === place);
}

/** Beyond what a list may hold a device is not known: nobody can be made to keep more. */
async function isInList(tx: Tx, { userId, deviceId, content }: RemoteDevice): Promise<boolean> {
  const { count, sizeBytes } = await otherDevicesOf(tx, userId, deviceId);
  return count < maxDevices && sizeBytes + Buffer.byteLength(content) <= maxListBytes;
}

/** The device in an update or a list; `undefined` when its keys are not what they should be. */
function deviceIn(userId: string, device: JsonObject): RemoteDevice | undefined {
  const { device_id: deviceId, keys, device_display_name: name } = device;
  if (!isName(deviceId) || !isJsonObject(keys)) return undefined;
  if (keys['user_id'] !== userId || keys['device_id'] !== deviceId) return undefined;
  const isShown = typeof name === 'string' && Buffer.byteLength(name) <= maxNameBytes && name.isWellFormed();
  const content = JSON.stringify({ keys, ...(isShown && { device_display_name: name }) });
  return Buffer.byteLength(content) > e2eeLimits.keyBytes ? undefined : { userId, deviceId, content };
}

const keyTypes = { master_key: 'master', self_signing_key: 'self_signing' } as const;

function keysIn(userId: string, content: JsonObject): RemoteKey[] {
  return Object.entries(keyTypes).flatMap(([field, keyType]) => {
    const key = content[field];
    if (!isJsonObject(key) || key['user_id'] !== userId || !isJsonObject(key['keys'])) return [];
    const json = JSON.stringify(key);
    return Buffer.byteLength(json) > e2eeLimits.keyBytes ? [] : [{ userId, keyType, json }];
  });
}

/** @returns `undefined` for what is no list of this user */
function listIn(userId: string, answer: JsonObject): DeviceList | undefined {
  const { user_id: named, stream_id: streamId, devices } = answer;
  if (named !== userId || !Number.isSafeInteger(streamId) || !Array.isArray(devices)) return undefined;
  const found = new Map<string, RemoteDevice>();
  let leftBytes = maxListBytes;
  for (const device of devices.slice(0, maxDevices) as unknown[]) {
    const one = isJsonObject(device) ? deviceIn(userId, device) : undefined;
    const bytes = one ? Buffer.byteLength(one.content) : 0;
    if (!one || bytes > leftBytes) continue;
    leftBytes -= bytes;
    found.set(one.deviceId, one);
  }
  return { streamId: String(streamId), devices: [...found.values()], keys: keysIn(userId, answer) };
}

/** Why what is known is not given. */
export const noRoomForKeys = (): Error => new Error('There is no room for more keys');

const noLists = (): RemoteLists => ({ device_keys: {}, master_keys: {}, self_signing_keys: {} });

/** Adds lists as they are on the wire. */
function addLists(
  lists: RemoteLists,
  userIds: readonly string[],
  devices: readonly RemoteDevice[],
  keys: readonly RemoteKey[],
): void {
  for (const userId of userIds) lists.device_keys[userId] = {};
  for (const { userId, deviceId, content } of devices) {
    const parsed = JSON.parse(content) as { keys: JsonObject; device_display_name?: string };
    const { keys: device, ...unsigned } = parsed;
    const known = lists.device_keys[userId];
    if (known) known[deviceId] = { ...device, unsigned };
  }
  for (const { userId, keyType, json } of keys)
    if (keyType === 'master' || keyType === 'self_signing')
      lists[`${keyType}_keys`][userId] = JSON.parse(json) as JsonObject;
}
