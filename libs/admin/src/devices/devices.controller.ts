import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { DehydratedDeviceService } from '@rookery/e2ee';
import { HttpReply, type Infer, json, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { ClientActivity, type Device, DeviceService } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';

/** Most devices that one request may delete. */
const maxDeleted = 10_000;

const createBody = json.object({
  device_id: json.required(
    'The id of the new device; nothing happens where the user has one of this id.',
    json.string(),
  ),
});
const renameBody = json.object({ display_name: json.optional('The name from now on.', json.nullable(json.string())) });
const deleteManyBody = json.object({
  devices: json.required(
    'Ids of the devices that are signed out.',
    json.array(json.string(), { maxItems: maxDeleted }),
  ),
});

/** The devices of a user. */
@Controller()
@AdminAccess()
export class DevicesController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly devices: DeviceService,
    private readonly dehydrated: DehydratedDeviceService,
    private readonly activity: ClientActivity,
  ) {}

  /** GET /_synapse/admin/v2/users/{userId}/devices */
  @Get(admin('v2', '/users/:userId/devices'))
  async list(@Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.activity.flush();
    const [devices, dehydrated] = await Promise.all([this.devices.list(userId), this.dehydrated.idOf(userId)]);
    return { devices: devices.map((device) => toWire(userId, device, dehydrated)), total: devices.length };
  }

  /** POST /_synapse/admin/v2/users/{userId}/devices */
  @Post(admin('v2', '/users/:userId/devices'))
  async create(
    @Param('userId') text: string,
    @JsonBody(createBody)
    body: Infer<typeof createBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.devices.create(userId, body.device_id, undefined);
    return HttpReply.json(201, {});
  }

  /** GET /_synapse/admin/v2/users/{userId}/devices/{deviceId} */
  @Get(admin('v2', '/users/:userId/devices/:deviceId'))
  async get(@Param('userId') text: string, @Param('deviceId') deviceId: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.activity.flush();
    const device = await this.devices.find(userId, deviceId);
    if (device === undefined) throw MatrixError.noSuchDevice();
    return toWire(userId, device, await this.dehydrated.idOf(userId));
  }

  /** PUT /_synapse/admin/v2/users/{userId}/devices/{deviceId} */
  @Put(admin('v2', '/users/:userId/devices/:deviceId'))
  async rename(
    @Param('userId') text: string,
    @Param('deviceId') deviceId: string,
    @JsonBody(renameBody, { optional: true })
    body: Infer<typeof renameBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    if (typeof body.display_name === 'string') await this.devices.rename(userId, deviceId, body.display_name);
    else if (!(await this.devices.find(userId, deviceId))) throw MatrixError.noSuchDevice();
    return {};
  }

  /** DELETE /_synapse/admin/v2/users/{userId}/devices/{deviceId} */
  @Delete(admin('v2', '/users/:userId/devices/:deviceId'))
  async delete(@Param('userId') text: string, @Param('deviceId') deviceId: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.devices.delete(userId, [deviceId]);
    return {};
  }

  /** POST /_synapse/admin/v2/users/{userId}/delete_devices */
  @Post(admin('v2', '/users/:userId/delete_devices'))
  async deleteMany(
    @Param('userId') text: string,
    @JsonBody(deleteManyBody)
    body: Infer<typeof deleteManyBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.devices.delete(userId, body.devices);
    return {};
  }
}

const toWire = (userId: string, device: Device, dehydratedId: string | undefined): object => ({
  user_id: userId,
  device_id: device.deviceId,
  display_name: device.displayName ?? null,
  last_seen_ip: device.lastSeenIp ?? null,
  last_seen_user_agent: device.lastSeenUserAgent ?? null,
  last_seen_ts: device.lastSeenMs ?? null,
  ...(dehydratedId !== undefined && { dehydrated: device.deviceId === dehydratedId }),
});
