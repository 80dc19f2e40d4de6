import { Injectable } from '@nestjs/common';
import { DeviceListService, OneTimeKeyService, ToDeviceService } from '@rookery/e2ee';
import type { JsonObject } from '@rookery/matrix-types';
import type { SyncContext } from '../sync-context.js';

/** What a sync says about devices. */
export interface DeviceAnswer {
  readonly body: JsonObject;
  /** Whether there is news in it: messages, changed device lists, keys that were used up or added. */
  readonly hasNews: boolean;
  /** Up to where to-device messages were given. */
  readonly toDevice: number;
}

/** To-device messages, device lists and counts of keys. */
@Injectable()
export class DevicesSection {
  constructor(
    private readonly toDevice: ToDeviceService,
    private readonly deviceLists: DeviceListService,
    private readonly keys: OneTimeKeyService,
  ) {}

  /** @param joined rooms that the user is in */
  async build(joined: ReadonlySet<string>, context: SyncContext): Promise<DeviceAnswer> {
    const { userId, deviceId, since, now } = context;
    const body: JsonObject = {};
    if (since !== undefined) {
      const lists = await this.deviceLists.changes({ userId, joinedRooms: joined, after: since, upTo: now });
      if (lists.changed.length > 0 || lists.left.length > 0) body['device_lists'] = lists;
    }
    if (deviceId === undefined) return { body, hasNews: 'device_lists' in body, toDevice: now.toDevice };
    // Coming back with a token says that everything before it has arrived.
    if (since !== undefined) await this.toDevice.acknowledge(userId, deviceId, since.toDevice);
    const page = await this.toDevice.messages(userId, deviceId, since?.toDevice ?? 0, now.toDevice);
    if (page.events.length > 0) body['to_device'] = { events: page.events };
    const hasNews =
      Object.keys(body).length > 0 ||
      (since !== undefined && this.keys.mayHaveChanged(userId, deviceId, since.toDevice, now.toDevice));
    const { counts, unusedFallbackTypes } = await this.keys.counts(userId, deviceId);
    body['device_one_time_keys_count'] = counts;
    body['device_unused_fallback_key_types'] = unusedFallbackTypes;
    return { body, hasNews, toDevice: page.position };
  }
}
