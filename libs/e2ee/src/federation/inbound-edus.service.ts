import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, isValidUserId, type JsonObject } from '@rookery/matrix-types';
import { isName } from '../common/limits.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { localUsersSharing } from '../device-lists/device-list.query.js';
import { ToDeviceService } from '../to-device/to-device.service.js';

/**
 * To-device messages and news of device lists from other servers. A server speaks for its own users only; everything else,
 * and what has the wrong shape, is passed over. Keys of other servers' users are asked for when they are needed, so that an
 * update only says that they changed.
 * @spec server-server-api#device-management
 */
@Injectable()
export class InboundDeviceEdus {
  constructor(
    private readonly database: Database,
    private readonly deviceLists: DeviceListService,
    private readonly toDevice: ToDeviceService,
  ) {}

  /** Content of `m.direct_to_device`. */
  receiveMessages(origin: string, content: JsonObject): Promise<void> {
    return this.toDevice.receive(origin, content);
  }

  /** Content of `m.device_list_update`. */
  async receiveDeviceList(origin: string, content: JsonObject): Promise<void> {
    const { user_id: userId, device_id: deviceId } = content;
    if (isName(deviceId)) await this.#changed(origin, userId, deviceId);
  }

  /** Content of `m.signing_key_update`. */
  async receiveSigningKeys(origin: string, content: JsonObject): Promise<void> {
    await this.#changed(origin, content['user_id'], '');
  }

  async #changed(origin: string, userId: unknown, deviceId: string): Promise<void> {
    if (typeof userId !== 'string' || !isValidUserId(userId) || domainOf(userId) !== origin) return;
    // What concerns nobody here is not worth a row.
    if ((await localUsersSharing(this.database, userId)).size === 0) return;
    await this.deviceLists.remoteChanged(userId, [deviceId]);
  }
}
