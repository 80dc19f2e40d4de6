import { Injectable } from '@nestjs/common';
import { DehydratedDeviceService } from '@rookery/e2ee';
import { type Infer, json } from '@rookery/http';
import { DeviceService } from '@rookery/users';
import { localpart, ServiceAccounts } from './service-accounts.service.js';

/** What names a device of a user. */
export const deviceFields = {
  localpart,
  device_id: json.required('The id of the device.', json.string({ minLength: 1 })),
};
/** A device of a user. */
export const deviceSchema = json.object({
  ...deviceFields,
  display_name: json.optional('What the device is called; the name stays when absent.', json.nullable(json.string())),
});
type DeviceBody = Infer<typeof deviceSchema>;

/** Devices as the service that authenticates users has them. */
@Injectable()
export class ServiceDevices {
  constructor(
    private readonly accounts: ServiceAccounts,
    private readonly devices: DeviceService,
    private readonly dehydrated: DehydratedDeviceService,
  ) {}

  /** @returns whether the device is new. @throws MatrixError 404 `M_NOT_FOUND` */
  async upsert({ localpart, device_id: deviceId, display_name: name }: DeviceBody): Promise<boolean> {
    const { userId } = await this.accounts.find(localpart);
    const isNew = await this.devices.create(userId, deviceId, name ?? undefined);
    if (!isNew && typeof name === 'string') await this.devices.rename(userId, deviceId, name);
    return isNew;
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async delete({ localpart, device_id: deviceId }: DeviceBody): Promise<void> {
    const { userId } = await this.accounts.find(localpart);
    await this.devices.delete(userId, [deviceId]);
  }

  /** @throws MatrixError 404 `M_NOT_FOUND`, 400 `M_TOO_LARGE` */
  async rename(body: DeviceBody & { readonly display_name: string }): Promise<void> {
    const { userId } = await this.accounts.find(body.localpart);
    await this.devices.rename(userId, body.device_id, body.display_name);
  }

  /** Makes these the only devices of a user, beside the dehydrated one. @throws MatrixError 404 `M_NOT_FOUND` */
  async sync(localpart: string, wanted: readonly string[]): Promise<void> {
    const { userId } = await this.accounts.find(localpart);
    const known = new Set((await this.devices.list(userId)).map(({ deviceId }) => deviceId));
    const kept = new Set([...wanted, (await this.dehydrated.idOf(userId)) ?? '']);
    await this.devices.delete(
      userId,
      [...known].filter((deviceId) => !kept.has(deviceId)),
    );
    for (const deviceId of new Set(wanted))
      if (!known.has(deviceId)) await this.devices.create(userId, deviceId, undefined);
  }
}
