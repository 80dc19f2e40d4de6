import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  DeviceKeyService,
  deviceListsStream,
  type LocalKeys,
  type OutboxMessage,
  ToDeviceService,
} from '@rookery/e2ee';
import { domainOf, type JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Lifecycle, Logger } from '@rookery/platform';
import { Follower, Notifier } from '@rookery/replication';
import { FederationSender } from '../sender/federation-sender.js';
import { eduOf, eduOfText, type EduStore, type OutgoingEdu, type StoredEdus } from '../sender/outgoing-edu.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import {
  type DevicePoke,
  insertPokes,
  lastPokesOf,
  pokedServers,
  pokesDelivered,
  pokesFor,
} from './device-pokes.query.js';

const cursor = 'federation_device_lists';
const maxChanges = 100;
/** Rows of one step. */
const maxPokes = 5_000;
/** No further message is added to a transaction that holds so much; characters. */
const maxChars = 1_048_576;
/** A public key of cross-signing; a change of one is noted under it. */
const publicKey = /^[A-Za-z0-9+/]{43}$/;

/**
 * Tells other servers what their users' clients have to know of devices here: to-device messages and changes of device lists.
 * Both lie in the database until a server has them.
 */
@Injectable()
export class DeviceNews implements OnModuleInit {
  #follower: Follower | undefined;

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly sender: FederationSender,
    private readonly audience: RemoteAudience,
    private readonly toDevice: ToDeviceService,
    private readonly deviceKeys: DeviceKeyService,
  ) {}

  onModuleInit(): void {
    // A message may be encrypted for a device that its receiver does not know yet: lists come first.
    this.sender.addStore(this.#pokes);
    this.sender.addStore(this.#messages);
    this.toDevice.onQueued((servers) => {
      this.sender.wake(this.#messages, servers);
      for (const server of servers) if (!this.audience.mayReach(server)) void this.#drop(server);
    });
    this.lifecycle.on('streams', {
      name: 'device lists for other servers',
      start: () => this.#start(),
      stop: () => this.#follower?.stop(),
    });
  }

  async #start(): Promise<void> {
    const { database, notifier, clock, logger } = this;
    this.#follower = new Follower({
      ...{ name: cursor, stream: deviceListsStream.name, database, notifier, clock, logger, startAt: 'now' },
      saveEveryMs: 5_000,
      advance: (after, upTo) => this.#advance(after, upTo),
    });
    await this.#follower.start();
  }

  /** Forgets messages for a server that the settings do not allow, or that cannot exist. */
  async #drop(server: string): Promise<void> {
    try {
      await this.toDevice.delivered(server, this.toDevice.stream.current());
    } catch (error) {
      this.logger.warn('Messages for a server that cannot be reached were not deleted', { err: error });
    }
  }

  /** Notes changes for the servers that share a room with their user. */
  async #advance(after: number, upTo: number): Promise<number> {
    const { database } = this;
    const changes = await deviceListsStream.read(database, after, upTo, maxChanges);
    let reached = changes.length < maxChanges ? upTo : (changes.at(-1)?.position ?? upTo);
    const local = changes.filter(({ userId }) => domainOf(userId) === this.config.serverName);
    if (local.length === 0) return reached;
    const servers = await this.audience.ofUsers([...new Set(local.map(({ userId }) => userId))]);
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
    this.sender.wake(this.#pokes, told);
    return reached;
  }

  readonly #messages: EduStore = {
    destinations: () => this.toDevice.outboxDestinations(0, this.toDevice.stream.current()),
    next: async (destination, limit) => {
      const upTo = this.toDevice.stream.current();
      const waiting = await this.toDevice.outbox(destination, 0, upTo, limit);
      const taken = within(maxChars, waiting);
      const last = taken.at(-1)?.position;
      return {
        edus: taken.flatMap(({ json }) => eduOfText('m.direct_to_device', json) ?? []),
        isAll: taken.length < limit && taken.length === waiting.length,
        delivered: async () => {
          if (last !== undefined) await this.toDevice.delivered(destination, last);
        },
      };
    },
  };

  readonly #pokes: EduStore = {
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
    const existing = await this.deviceKeys.existing(pokes.filter((poke) => !hasKeys(poke)));
    const edus: OutgoingEdu[] = [];
    const signing = new Set<string>();
    for (const poke of pokes) {
      const { userId, deviceId, streamId } = poke;
      if (!hasKeys(poke) && publicKey.test(deviceId)) {
        signing.add(userId);
        continue;
      }
      const isThere = hasKeys(poke) || existing.has(`${userId}\n${deviceId}`);
      edus.push(deviceListUpdate(poke, last.get(userId), keys, isThere));
      last.set(userId, streamId);
    }
    for (const userId of signing) {
      const content = signingKeyUpdate(userId, keys);
      // Some servers know the second name only.
      edus.push(eduOf('m.signing_key_update', content), eduOf('org.matrix.signing_key_update', content));
    }
    const upTo = pokes.at(-1)?.streamId ?? 0;
    return {
      edus,
      isAll: pokes.length < max,
      delivered: () =>
        this.database.write((tx) => pokesDelivered(tx, destination, upTo, last), { name: 'federation_device_pokes' }),
    };
  }
}

/** As many as fit, one at least. */
function within(chars: number, messages: readonly OutboxMessage[]): readonly OutboxMessage[] {
  let sum = 0;
  const end = messages.findIndex(({ json }, index) => (sum += json.length) > chars && index > 0);
  return end < 0 ? messages : messages.slice(0, end);
}

/** @spec server-server-api#device-management */
function deviceListUpdate(
  poke: DevicePoke,
  previous: number | undefined,
  keys: LocalKeys,
  isThere: boolean,
): OutgoingEdu {
  const { userId, deviceId, streamId } = poke;
  const found = keys.device_keys[userId]?.[deviceId];
  const about = {
    user_id: userId,
    device_id: deviceId,
    stream_id: streamId,
    prev_id: previous === undefined ? [] : [previous],
  };
  if (found === undefined) return eduOf('m.device_list_update', isThere ? about : { ...about, deleted: true });
  const { unsigned, ...device } = found;
  const { device_display_name: name } = unsigned as { device_display_name?: string };
  return eduOf('m.device_list_update', { ...about, keys: device, device_display_name: name });
}

function signingKeyUpdate(userId: string, keys: LocalKeys): JsonObject {
  const [master, selfSigning] = [keys.master_keys[userId], keys.self_signing_keys[userId]];
  return {
    user_id: userId,
    ...(master && { master_key: master }),
    ...(selfSigning && { self_signing_key: selfSigning }),
  };
}
