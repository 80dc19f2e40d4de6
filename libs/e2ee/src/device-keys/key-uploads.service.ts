import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { deleteKeysOfDevices, isDeviceHeld, writeDeviceKeys } from './device-key.query.js';
import { type KeyUpload, parseKeyUpload } from './key-upload.js';
import { OneTimeKeyService } from './one-time-key.service.js';

/** Keys of devices as they come and go. */
@Injectable()
export class KeyUploads {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly deviceLists: DeviceListService,
    private readonly oneTimeKeys: OneTimeKeyService,
    userHooks: UserHooks,
  ) {
    userHooks.devicesDeleted.subscribe({
      inTransaction: (tx, { userId, deviceIds }) => this.#forget(tx, userId, deviceIds),
    });
    userHooks.devicesChanged.subscribe({
      // Other servers are told of each change of a list: what they are not told of they keep.
      inTransaction: async (tx, { userId, deviceIds }) => void (await this.deviceLists.changed(tx, userId, deviceIds)),
    });
  }

  /**
   * Stores what a device uploads; equal keys once more change nothing.
   * @returns how many one-time keys the device has left, by algorithm
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, `M_UNKNOWN_DEVICE`, 413 `M_TOO_LARGE`
   * @spec client-server-api#post_matrixclientv3keysupload
   */
  async upload(userId: string, deviceId: string, body: JsonObject): Promise<Record<string, number>> {
    const keys = parseKeyUpload(body, userId, deviceId);
    if (keys.deviceKeys !== undefined || keys.oneTimeKeys.length > 0 || keys.fallbackKeys.length > 0)
      await this.database.write((tx) => this.uploadInTransaction(tx, userId, deviceId, keys), {
        ...{ name: 'keys_upload', anyProcess: this.deviceLists.stream.isWrittenHere },
      });
    return (await this.oneTimeKeys.counts(userId, deviceId)).counts;
  }

  /** The part of {@link upload} that belongs to a larger change. @throws MatrixError 400 `M_UNKNOWN_DEVICE`, 413 `M_TOO_LARGE` */
  async uploadInTransaction(tx: Tx, userId: string, deviceId: string, keys: KeyUpload): Promise<void> {
    const { deviceKeys, oneTimeKeys, fallbackKeys } = keys;
    if (!(await isDeviceHeld(tx, userId, deviceId))) throw MatrixError.unknownDevice();
    const isNews =
      deviceKeys !== undefined && (await writeDeviceKeys(tx, userId, deviceId, deviceKeys, this.clock.nowMs()));
    // Before positions are taken, for which others may wait.
    const audience = isNews ? await this.deviceLists.audience(tx, [userId]) : undefined;
    await this.oneTimeKeys.store(tx, userId, deviceId, oneTimeKeys, fallbackKeys);
    if (audience) await this.deviceLists.tell(tx, [{ userId, deviceIds: [deviceId] }], audience);
  }

  async #forget(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<void> {
    await deleteKeysOfDevices(tx, userId, deviceIds);
    this.oneTimeKeys.forget(tx, userId, deviceIds);
    await this.deviceLists.changed(tx, userId, deviceIds);
  }
}
