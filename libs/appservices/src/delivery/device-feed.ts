import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  deleteInboxEntries,
  type DeviceListChange,
  deviceListsStream,
  inboxEntries,
  type InboxEntry,
} from '@rookery/e2ee';
import type { JsonObject } from '@rookery/matrix-types';
import { batchesBySize, Clock, Config, Logger } from '@rookery/platform';
import { Follower, Notifier, saveCursor } from '@rookery/replication';
import type { Registration } from '../registration/registration.js';
import { wantsEphemeral } from './ephemeral-feed.js';
import { RoomInterest } from './room-interest.js';
import { type Parcel, transactionBytes, transactionLimit, TransactionStore } from './transaction-store.js';

const batchSize = 100;
const toDeviceCursor = 'appservice_to_device';
const deviceListsCursor = 'appservice_device_lists';

/**
 * What services need to encrypt for their users: to-device messages (MSC2409) and changed devices (MSC3202). None is lost,
 * whatever happens to the service.
 */
@Injectable()
export class DeviceFeed {
  readonly #followers: Follower[] = [];

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly config: Config,
    private readonly interest: RoomInterest,
    private readonly store: TransactionStore,
  ) {}

  /** @param wake told when there is something for a service */
  async start(wake: (asId: string) => void): Promise<void> {
    const { services } = this.interest;
    const getMessages = this.config.get('experimental_features.msc2409_to_device_messages_enabled')
      ? services.filter(wantsEphemeral)
      : [];
    const getLists = this.config.get('experimental_features.msc3202_transaction_extensions')
      ? services.filter(({ fields }) => fields.extensions)
      : [];
    if (getMessages.length > 0)
      await this.#follow(toDeviceCursor, 'to_device', (after, upTo) => this.#messages(getMessages, after, upTo, wake));
    if (getLists.length > 0)
      await this.#follow(deviceListsCursor, deviceListsStream.name, (after, upTo) =>
        this.#lists(getLists, after, upTo, wake),
      );
  }

  async stop(): Promise<void> {
    await Promise.all(this.#followers.map((follower) => follower.stop()));
  }

  async #follow(
    name: string,
    stream: string,
    advance: (after: number, upTo: number) => Promise<number>,
  ): Promise<void> {
    const { database, notifier, clock, logger } = this;
    const follower = new Follower({ name, stream, database, notifier, clock, logger, startAt: 'now', advance });
    this.#followers.push(follower);
    await follower.start();
  }

  /** Messages for users who are a service's own go there, and not into their inboxes: nobody else would fetch them. */
  async #messages(
    services: readonly Registration[],
    after: number,
    upTo: number,
    wake: (asId: string) => void,
  ): Promise<number> {
    const entries = await inboxEntries(this.database, after, upTo, batchSize);
    const last = entries.at(-1);
    const reached = last === undefined || entries.length <= batchSize ? upTo : last.position;
    const taken: InboxEntry[] = [];
    const byService = new Map<string, { readonly message: JsonObject; readonly sizeBytes: number }[]>();
    for (const entry of entries) {
      const service = services.find((one) => one.owns(entry.userId));
      if (!service) continue;
      taken.push(entry);
      const message = JSON.parse(entry.json) as JsonObject;
      const list = byService.get(service.id) ?? [];
      list.push({
        message: { ...message, to_user_id: entry.userId, to_device_id: entry.deviceId },
        sizeBytes: Buffer.byteLength(entry.json),
      });
      byService.set(service.id, list);
    }
    if (taken.length === 0) return reached;
    const parcels = [...byService].flatMap(([asId, list]) =>
      batchesBySize(list, (one) => one.sizeBytes, transactionBytes, transactionLimit).map((some): Parcel => ({
        asId,
        toDevice: some.map((one) => one.message),
        sizeBytes: some.reduce((sum, one) => sum + one.sizeBytes, 0),
      })),
    );
    await this.store.add(parcels, async (tx) => {
      await deleteInboxEntries(tx, taken);
      await saveCursor(tx, toDeviceCursor, reached);
    });
    for (const asId of byService.keys()) wake(asId);
    return reached;
  }

  async #lists(
    services: readonly Registration[],
    after: number,
    upTo: number,
    wake: (asId: string) => void,
  ): Promise<number> {
    const rows: readonly DeviceListChange[] = await deviceListsStream.read(this.database, after, upTo, batchSize);
    const reached = rows.length < batchSize ? upTo : (rows.at(-1)?.position ?? upTo);
    const changed = new Map<string, Set<string>>();
    for (const [userId, interested] of await this.interest.ofUsers([...new Set(rows.map((row) => row.userId))])) {
      for (const service of services) {
        if (!interested.has(service)) continue;
        const users = changed.get(service.id);
        if (users) users.add(userId);
        else changed.set(service.id, new Set([userId]));
      }
    }
    if (changed.size === 0) return reached;
    const parcels = [...changed].map(([asId, users]): Parcel => ({ asId, changed: [...users] }));
    await this.store.add(parcels, (tx) => saveCursor(tx, deviceListsCursor, reached));
    for (const asId of changed.keys()) wake(asId);
    return reached;
  }
}
