import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { KeyedMutex } from '@rookery/platform';
import { DeviceService, holdAccount, SessionService, UserHooks } from '@rookery/users';
import { isName, limits, objectText } from '../common/limits.js';
import { KeyUploads } from '../device-keys/key-uploads.service.js';
import { parseKeyUpload } from '../device-keys/key-upload.js';
import { type ToDevicePage, ToDeviceService } from '../to-device/to-device.service.js';
import { deleteDehydrated, findDehydrated, writeDehydrated } from './dehydrated-device.query.js';

/**
 * A device that takes messages while its user has none: its private keys lie at the server, encrypted (MSC3814). A user has
 * one at most.
 */
@Injectable()
export class DehydratedDeviceService {
  // Of two at a time of one user, each would leave the device of the other behind.
  readonly #puts = new KeyedMutex({ maxWaiting: 20, refuse: () => MatrixError.limitExceeded(2_000) });

  constructor(
    private readonly database: Database,
    private readonly devices: DeviceService,
    private readonly sessions: SessionService,
    private readonly uploads: KeyUploads,
    private readonly toDevice: ToDeviceService,
    userHooks: UserHooks,
  ) {
    userHooks.devicesDeleted.subscribe({
      inTransaction: (tx, { userId, deviceIds }) => deleteDehydrated(tx, userId, deviceIds),
    });
  }

  /**
   * Stores a device with its keys in place of the former one: all of that, or nothing. @returns its id
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, `M_MISSING_PARAM`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED`, 403
   *   `M_USER_DEACTIVATED`
   */
  put(userId: string, body: JsonObject): Promise<string> {
    return this.#puts.run(userId, () => this.#put(userId, body));
  }

  async #put(userId: string, body: JsonObject): Promise<string> {
    const { device_id: deviceId, device_data: data, initial_device_display_name: name } = body;
    if (!isName(deviceId)) throw MatrixError.invalidParam("'device_id' must be a device id");
    if (name !== undefined && name !== null && typeof name !== 'string')
      throw MatrixError.badJson("'initial_device_display_name' must be a text");
    const text = objectText(data, "'device_data'", limits.dehydratedBytes);
    const keys = parseKeyUpload(body, userId, deviceId);
    if (keys.deviceKeys === undefined) throw MatrixError.missingParam("Missing parameter 'device_keys'");
    const former = await this.idOf(userId);
    if (former !== undefined && former !== deviceId) await this.sessions.tellModules(userId, {}, (id) => id === former);
    const { isNew, closed } = await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        const before = (await findDehydrated(tx, userId))?.deviceId;
        const isNew = await this.devices.createInTransaction(tx, userId, deviceId, name ?? undefined);
        if (!isNew && before !== deviceId) throw MatrixError.invalidParam('You have another device with this id');
        await this.uploads.uploadInTransaction(tx, userId, deviceId, keys);
        // Before its device goes, and what is noted of that one with it.
        await writeDehydrated(tx, userId, deviceId, text);
        const goes = before !== undefined && before !== deviceId;
        return {
          isNew,
          closed: goes ? await this.sessions.closeDevicesInTransaction(tx, userId, [before]) : undefined,
        };
      },
      { name: 'dehydrated_device' },
    );
    if (isNew) await this.devices.afterCreated(userId, deviceId);
    if (closed) await this.sessions.afterClosed(userId, closed);
    return deviceId;
  }

  /** Which of a user's devices it is; `undefined` when there is none. */
  async idOf(userId: string): Promise<string | undefined> {
    return (await findDehydrated(this.database, userId))?.deviceId;
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async get(userId: string): Promise<{ deviceId: string; data: JsonObject }> {
    const { deviceId, data } = await this.#existing(userId);
    return { deviceId, data: JSON.parse(data) as JsonObject };
  }

  /** @returns the id of the device. @throws MatrixError 404 `M_NOT_FOUND` */
  async delete(userId: string): Promise<string> {
    const { deviceId } = await this.#existing(userId);
    await this.devices.delete(userId, [deviceId]);
    return deviceId;
  }

  /**
   * Messages that the device got, for the one that takes it up. They stay until the device is deleted.
   * @throws MatrixError 403 `M_FORBIDDEN` when it is another device, 404 `M_NOT_FOUND`
   */
  async events(userId: string, deviceId: string, after: number, limit: number): Promise<ToDevicePage> {
    if ((await this.#existing(userId)).deviceId !== deviceId)
      throw MatrixError.forbidden('This is not your dehydrated device');
    return this.toDevice.messages(userId, deviceId, after, this.toDevice.stream.current(), limit);
  }

  async #existing(userId: string): Promise<{ deviceId: string; data: string }> {
    const found = await findDehydrated(this.database, userId);
    if (found === undefined) throw MatrixError.notFound('There is no dehydrated device');
    return found;
  }
}
