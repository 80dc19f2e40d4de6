import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Origin } from '../common/account-modules.js';
import { UserHooks } from '../hooks.js';
import { SessionService } from './session.service.js';
import { checkDeviceName } from './device-names.js';
import {
  type Device,
  ensureDevice,
  findDevice,
  listDevices,
  renameDevice,
  reserveDeviceId,
} from '../store/device.query.js';

/** The devices of local users. */
@Injectable()
export class DeviceService {
  constructor(
    private readonly database: Database,
    private readonly sessions: SessionService,
    private readonly hooks: UserHooks,
  ) {}

  /** By id. */
  list(userId: string): Promise<Device[]> {
    return listDevices(this.database, userId);
  }

  async find(userId: string, deviceId: string): Promise<Device | undefined> {
    return deviceId.includes('\0') ? undefined : findDevice(this.database, userId, deviceId);
  }

  /**
   * @throws MatrixError 400 `M_TOO_LARGE`, 404 `M_NOT_FOUND`
   */
  async rename(userId: string, deviceId: string, displayName: string): Promise<void> {
    const name = checkDeviceName(displayName, 'refuse')!;
    if (!(await this.find(userId, deviceId))) throw MatrixError.noSuchDevice();
    const event = { userId, deviceIds: [deviceId], renamed: true };
    const renamed = await this.database.write(
      async (tx) => {
        if (!(await renameDevice(tx, userId, deviceId, name))) return false;
        await this.hooks.devicesChanged.inTransaction(tx, event);
        return true;
      },
      { name: 'device_rename' },
    );
    if (!renamed) throw MatrixError.noSuchDevice();
    await this.hooks.devicesChanged.afterCommit(event);
  }

  /**
   * Makes sure that a device exists, without a session: administrators and application services (MSC4190).
   * @returns whether it is new
   * @throws MatrixError 400 `M_INVALID_PARAM`, 403 `M_FORBIDDEN`
   */
  async create(userId: string, deviceId: string, displayName: string | undefined): Promise<boolean> {
    const isNew = await this.database.write((tx) => this.createInTransaction(tx, userId, deviceId, displayName), {
      name: 'device_create',
    });
    if (isNew) await this.afterCreated(userId, deviceId);
    return isNew;
  }

  /** The part of {@link create} that belongs to a larger change; call {@link afterCreated} where it gives `true`. @throws as it */
  async createInTransaction(
    tx: Tx,
    userId: string,
    deviceId: string,
    displayName: string | undefined,
  ): Promise<boolean> {
    if (deviceId === '' || deviceId.includes('\0') || Buffer.byteLength(deviceId) > 255)
      throw MatrixError.notDeviceId();
    const outcome = await ensureDevice(tx, userId, deviceId, checkDeviceName(displayName, 'truncate'));
    if (outcome === 'reserved') throw MatrixError.forbidden('The device id is that of a cross-signing key');
    if (outcome === 'created') await this.hooks.devicesChanged.inTransaction(tx, { userId, deviceIds: [deviceId] });
    return outcome === 'created';
  }

  /** Tells the hooks. */
  async afterCreated(userId: string, deviceId: string): Promise<void> {
    await this.hooks.devicesChanged.afterCommit({ userId, deviceIds: [deviceId] });
  }

  /** Deletes devices with their sessions and keys; unknown ids are passed over. */
  async delete(userId: string, deviceIds: readonly string[], origin: Origin = {}): Promise<void> {
    await this.sessions.closeDevices(
      userId,
      deviceIds.filter((id) => !id.includes('\0')),
      { origin },
    );
  }

  /** Takes a cross-signing key's id out of the space of device ids. @returns whether no device has it */
  async reserve(userId: string, keyId: string): Promise<boolean> {
    return this.database.write((tx) => reserveDeviceId(tx, userId, keyId), { name: 'device_reserve' });
  }
}
