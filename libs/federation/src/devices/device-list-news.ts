import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { DeviceKeyService, deviceListsStream, type LocalKeys } from '@rookery/e2ee';
import { InvalidEventError } from '@rookery/events';
import { domainOf, isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Lifecycle, Logger } from '@rookery/platform';
import { Follower, Notifier } from '@rookery/replication';
import { FederationSender } from '../sender/federation-sender.js';
import { eduOf, type EduStore, type OutgoingEdu, type StoredEdus } from '../sender/outgoing-edu.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import {
  type DevicePoke,
  insertPokes,
  lastPokesOf,
  latestDevices,
  pokedServers,
  pokesDelivered,
  lastPokeWaiting,
  pokesFor,
  serversTold,
  wholeList,
} from './device-pokes.query.js';

/** The name of the cursor up to which servers were told, or what they are to be told was written down. */
export const deviceListsCursor = 'federation_device_lists';
const maxChanges = 100;
/** Rows of one step. */
const maxPokes = 5_000;
/** So many servers are told at once of a user whom they meet; more of them with what they are sent next. */
const fewServers = 50;

/** Tells other servers how the devices of users here change. What they are to be told lies in the database until they have it. */
@Injectable()
export class DeviceListNews implements OnModuleInit {
  #follower: Follower | undefined;

  // Nine parameters: four of them are what any follower of a stream takes.
  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly sender: FederationSender,
    private readonly audience: RemoteAudience,
    private readonly deviceKeys: DeviceKeyService,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'device lists for other servers',
      start: () => this.#start(),
      stop: () => this.#follower?.stop(),
    });
  }

  async #start(): Promise<void> {
    const { database, notifier, clock, logger } = this;
    this.#follower = new Follower({
      ...{ name: deviceListsCursor, stream: deviceListsStream.name, database, notifier, clock, logger, startAt: 'now' },
      saveEveryMs: 5_000,
      advance: (after, upTo) => this.#advance(after, upTo),
    });
    await this.#follower.start();
  }

  /** Notes changes for the servers that share a room with their user. */
  async #advance(after: number, upTo: number): Promise<number> {
    const { database } = this;
    const changes = await deviceListsStream.read(database, after, upTo, maxChanges);
    let reached = changes.length < maxChanges ? upTo : (changes.at(-1)?.position ?? upTo);
    const local = changes.filter(({ userId }) => domainOf(userId) === this.config.serverName);
    if (local.length === 0) return reached;
    const servers = await this.audience.sharedWith([...new Set(local.map(({ userId }) => userId))]);
    const pokes = new Map<string, DevicePoke & { destination: string }>();
    const told = new Set<string>();
    let before = after;
    for (const { userId, deviceId, position } of local) {
      const destinations = servers.get(userId) ?? new Set();
      if (pokes.size > 0 && pokes.size + destinations.size > maxPokes) {
        reached = before;
        break;
      }
      before = position;
      for (const destination of destinations) {
        pokes.set(`${destination}\n${userId}\n${deviceId}`, { destination, userId, deviceId, streamId: position });
        told.add(destination);
      }
    }
    if (pokes.size > 0)
      await database.write((tx) => insertPokes(tx, [...pokes.values()], this.clock.nowMs()), {
        name: 'federation_device_pokes',
      });
    this.sender.wake(this.store.name, told);
    return reached;
  }

  /**
   * Tells servers of users whom they may not have heard of before, or not of everything: of one device of each, as a change that follows
   * upon nothing, so that they ask for the whole list. Whoever was told of everything already is not told again.
   * @param met servers that came to share a room with users, by user
   */
  async introduce(met: ReadonlyMap<string, ReadonlySet<string>>): Promise<void> {
    const { database } = this;
    const now = this.notifier.position(deviceListsStream.name);
    for (const { userId, changedAt } of await latestDevices(database, [...met.keys()])) {
      const all = [...(met.get(userId) ?? [])];
      const servers: string[] = [];
      const poke = { userId, deviceId: wholeList, streamId: changedAt ?? now };
      for (let start = 0; start < all.length; start += maxPokes) {
        const some = all.slice(start, start + maxPokes);
        const told = await serversTold(database, some, userId, changedAt ?? 0);
        const pokes = some.filter((server) => !told.has(server)).map((destination) => ({ destination, ...poke }));
        if (pokes.length === 0) continue;
        servers.push(...pokes.map(({ destination }) => destination));
        await database.write((tx) => insertPokes(tx, pokes, this.clock.nowMs()), { name: 'federation_device_pokes' });
      }
      if (servers.length <= fewServers) this.sender.wake(this.store.name, servers);
      else this.sender.enclose(this.store.name, servers);
    }
  }

  /**
   * The place of the change of a user upon which the next one that a server is told of will be said to follow, what is on its way included:
   * upon that it may just be asking. `undefined` where it was told of none.
   */
  lastTold(destination: string, userId: string): Promise<number | undefined> {
    return lastPokeWaiting(this.database, destination, userId);
  }

  /** The changes that wait for servers. */
  readonly store: EduStore = {
    name: 'device_lists',
    destinations: () => pokedServers(this.database),
    next: (destination, limit) => this.#nextPokes(destination, limit),
  };

  async #nextPokes(destination: string, limit: number): Promise<StoredEdus> {
    // A change of cross-signing keys takes two EDUs.
    const max = Math.max(1, Math.floor(limit / 2));
    const pokes = await pokesFor(this.database, destination, max);
    if (pokes.length === 0) return { edus: [], isAll: true, delivered: () => Promise.resolve() };
    const userIds = [...new Set(pokes.map(({ userId }) => userId))];
    const [keys, last] = await Promise.all([
      this.deviceKeys.forServer(new Map(userIds.map((userId) => [userId, []]))),
      lastPokesOf(this.database, destination, userIds),
    ]);
    const hasKeys = ({ userId, deviceId }: DevicePoke): boolean => keys.device_keys[userId]?.[deviceId] !== undefined;
    const introduced = await this.#introduced(pokes);
    const existing = await this.deviceKeys.existing(pokes.filter((poke) => !poke.isKey && !hasKeys(poke)));
    const edus: OutgoingEdu[] = [];
    const signing = new Set<string>();
    for (const poke of pokes) {
      const { userId, streamId } = poke;
      if (poke.isKey) {
        signing.add(userId);
        continue;
      }
      const isIntroduction = poke.deviceId === wholeList;
      const deviceId = isIntroduction ? introduced.get(userId) : poke.deviceId;
      // There is no device any more, or it was introduced with this change.
      const told = last.get(userId);
      const isKnown = !isIntroduction && streamId === told && (introduced.get(userId) ?? deviceId) === deviceId;
      if (deviceId === undefined || isKnown) continue;
      const isThere = isIntroduction || hasKeys(poke) || existing.has(`${userId}\n${deviceId}`);
      // What comes late would seem to have been told: it has the server ask, too.
      const previous = isIntroduction || told === undefined || streamId < told ? [] : [told];
      edus.push(this.#update({ userId, deviceId, streamId }, previous, keys, isThere));
      last.set(userId, Math.max(streamId, told ?? 0));
    }
    for (const userId of signing) {
      // Some servers know the second name only.
      for (const type of ['m.signing_key_update', 'org.matrix.signing_key_update']) {
        const edu = this.#written(type, signingKeyUpdate(userId, keys));
        if (edu !== undefined) edus.push(edu);
      }
    }
    return {
      edus,
      isAll: pokes.length < max,
      delivered: () =>
        this.database.write((tx) => pokesDelivered(tx, destination, pokes, last), {
          ...{ name: 'federation_device_pokes', anyProcess: true },
        }),
    };
  }

  /**
   * A device whose keys cannot be sent is told without: what else the server is to get does not wait for it.
   * @spec server-server-api#device-management
   */
  #update(
    { userId, deviceId, streamId }: DevicePoke,
    previous: readonly number[],
    keys: LocalKeys,
    isThere: boolean,
  ): OutgoingEdu {
    const type = 'm.device_list_update';
    const about = { user_id: userId, device_id: deviceId, stream_id: streamId, prev_id: previous };
    const found = keys.device_keys[userId]?.[deviceId];
    if (found === undefined) return eduOf(type, isThere ? about : { ...about, deleted: true });
    const { unsigned, ...device } = found;
    const name = isJsonObject(unsigned) ? unsigned['device_display_name'] : undefined;
    const isName = typeof name === 'string';
    return (
      this.#written(type, { ...about, keys: device, ...(isName && { device_display_name: name }) }) ??
      eduOf(type, about)
    );
  }

  /** @returns `undefined` for what has no form in which it could be sent */
  #written(type: string, content: JsonObject): OutgoingEdu | undefined {
    try {
      return eduOf(type, content);
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      this.logger.warn('Keys cannot be told to other servers', { user_id: content['user_id'], reason: error.message });
      return undefined;
    }
  }

  /** By which device those are introduced who are, in some pokes: the one that changed last. */
  async #introduced(pokes: readonly DevicePoke[]): Promise<Map<string, string>> {
    const userIds = pokes.filter(({ deviceId }) => deviceId === wholeList).map(({ userId }) => userId);
    const devices = userIds.length > 0 ? await latestDevices(this.database, userIds) : [];
    return new Map(devices.map(({ userId, deviceId }) => [userId, deviceId]));
  }
}

function signingKeyUpdate(userId: string, keys: LocalKeys): JsonObject {
  const [master, selfSigning] = [keys.master_keys[userId], keys.self_signing_keys[userId]];
  return {
    user_id: userId,
    ...(master && { master_key: master }),
    ...(selfSigning && { self_signing_key: selfSigning }),
  };
}
