import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { OneTimeKeyService } from '@rookery/e2ee';
import { prejoinStateOf } from '@rookery/events';
import type { ClientEvent, JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { EventSerializer, EventStore, type StoredEvent } from '@rookery/rooms';
import { devicesOfUsers } from '@rookery/users';
import type { Registration } from '../registration/registration.js';
import { RoomInterest } from './room-interest.js';
import type { Transaction } from './transactions.query.js';

/** Most devices of which the keys are counted. */
const maxDevices = 1_000;

/** A transaction as it goes out, with what it counts as. */
export interface TransactionBody {
  readonly json: string;
  readonly events: readonly StoredEvent[];
  readonly isEmpty: boolean;
}

/** Writes transactions. @spec application-service-api#put_matrixappv1transactionstxnid */
@Injectable()
export class TransactionBodies {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly events: EventStore,
    private readonly serializer: EventSerializer,
    private readonly interest: RoomInterest,
    private readonly keys: OneTimeKeyService,
  ) {}

  /** @param edus typing, receipts, presence */
  async write(
    service: Registration,
    transaction: Pick<Transaction, 'eventIds' | 'toDevice' | 'changed'>,
    edus: readonly JsonObject[],
  ): Promise<TransactionBody> {
    const { toDevice = [], changed = [] } = transaction;
    const events = await this.events.inOrder(transaction.eventIds);
    const body: JsonObject = { events: await this.#serialize(service, events) };
    const { stable, unstable } = service.fields.ephemeral;
    if (stable && edus.length > 0) body['ephemeral'] = edus;
    if (unstable && edus.length > 0) body['de.sorunome.msc2409.ephemeral'] = edus;
    if (toDevice.length > 0) body['de.sorunome.msc2409.to_device'] = toDevice;
    if (changed.length > 0) body['org.matrix.msc3202.device_lists'] = { changed, left: [] };
    if (service.fields.extensions && this.config.get('experimental_features.msc3202_transaction_extensions'))
      Object.assign(body, await this.#keyCounts(service, events, toDevice as readonly JsonObject[]));
    const isEmpty = events.length + edus.length + toDevice.length + changed.length === 0;
    return { json: JSON.stringify(body), events, isEmpty };
  }

  async #serialize(service: Registration, events: readonly StoredEvent[]): Promise<ClientEvent[]> {
    const deviceId = `as:${service.id}`;
    const visible = events.map((stored) => ({ stored, membership: undefined }));
    const written = await this.serializer.serialize({ userId: service.senderUserId, deviceId }, visible, {
      withoutAggregations: true,
      withoutModules: true,
    });
    for (const [index, { event, transaction }] of events.entries()) {
      const view = written[index];
      if (!view) continue;
      view.unsigned ??= {};
      // It was sent by one of the service's users, for whom there is no other client to recognise it.
      if (transaction?.deviceId === deviceId) EventSerializer.nameTransaction(view.unsigned, transaction.txnId);
      const isInvite = event.type === 'm.room.member' && event.content['membership'] === 'invite';
      if (isInvite && event.stateKey !== undefined && service.covers(event.stateKey))
        view.unsigned['invite_room_state'] = prejoinStateOf(event);
    }
    return written;
  }

  /** MSC3202: what is left of the keys of users whom the transaction concerns. */
  async #keyCounts(
    service: Registration,
    events: readonly StoredEvent[],
    toDevice: readonly JsonObject[],
  ): Promise<JsonObject> {
    const users = new Set([service.senderUserId]);
    for (const { to_user_id: userId } of toDevice) users.add(String(userId));
    for (const members of await this.interest.membersOf(new Set(events.map(({ event }) => event.roomId))))
      for (const userId of members) if (service.covers(userId)) users.add(userId);
    const devices = await devicesOfUsers(this.database, [...users], { limit: maxDevices });
    const counts: Record<string, JsonObject> = {};
    const fallbacks: Record<string, JsonObject> = {};
    await Promise.all(
      devices.map(async ({ userId, deviceId }) => {
        const left = await this.keys.counts(userId, deviceId);
        (counts[userId] ??= {})[deviceId] = left.counts;
        (fallbacks[userId] ??= {})[deviceId] = left.unusedFallbackTypes;
      }),
    );
    return {
      // Bridges know it by its older name as well.
      'org.matrix.msc3202.device_one_time_key_counts': counts,
      'org.matrix.msc3202.device_one_time_keys_count': counts,
      'org.matrix.msc3202.device_unused_fallback_key_types': fallbacks,
    };
  }
}
