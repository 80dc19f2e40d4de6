import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  stable,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { authField } from '../uia/auth-field.js';
import { UserAuthGate } from '../uia/user-auth-gate.js';
import type { Device } from '../store/device.query.js';
import { DeviceService } from '../sessions/device.service.js';

/** Most devices that one request may delete. */
const maxDeleted = 1000;

const renameBody = json.object({ display_name: json.optional('The name from now on.', json.string()) });
const deleteBody = json.object({ auth: authField });
const deleteManyBody = json.object({
  auth: authField,
  devices: json.required(
    'Ids of the devices that are signed out.',
    json.array(json.string(), { maxItems: maxDeleted }),
  ),
});

@Controller()
export class DeviceController {
  constructor(
    private readonly devices: DeviceService,
    private readonly gate: UserAuthGate,
  ) {}

  /** GET /_matrix/client/v3/devices */
  @Get(stable('/devices'))
  @Access({ auth: 'required', guests: true })
  async list(@Who() requester: Requester): Promise<object> {
    return { devices: (await this.devices.list(requester.userId)).map(toWire) };
  }

  /** GET /_matrix/client/v3/devices/{deviceId} */
  @Get(stable('/devices/:deviceId'))
  @Access({ auth: 'required', guests: true })
  async get(@Who() requester: Requester, @Param('deviceId') deviceId: string): Promise<object> {
    const device = await this.devices.find(requester.userId, deviceId);
    if (!device) throw MatrixError.noSuchDevice();
    return toWire(device);
  }

  /** PUT /_matrix/client/v3/devices/{deviceId} */
  @Put(stable('/devices/:deviceId'))
  @Access({ auth: 'required', guests: true })
  async rename(
    @Who() requester: Requester,
    @Param('deviceId') deviceId: string,
    @JsonBody(renameBody, { optional: true }) body: Infer<typeof renameBody>,
  ): Promise<object> {
    if (
      requester.appserviceId !== undefined &&
      (await this.devices.create(requester.userId, deviceId, body.display_name))
    )
      return HttpReply.json(201, {});
    if (body.display_name !== undefined) await this.devices.rename(requester.userId, deviceId, body.display_name);
    else if (!(await this.devices.find(requester.userId, deviceId))) throw MatrixError.noSuchDevice();
    return {};
  }

  /** DELETE /_matrix/client/v3/devices/{deviceId} */
  @Delete(stable('/devices/:deviceId'))
  @Access({ ownAuth: 'users', auth: 'required' })
  async delete(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('deviceId') deviceId: string,
    @JsonBody(deleteBody, { optional: true }) body: Infer<typeof deleteBody>,
  ): Promise<object> {
    await this.gate.require(requester, request, body, {
      description: 'remove a device from your account',
      mayReuse: true,
    });
    await this.devices.delete(requester.userId, [deviceId], { requester });
    return {};
  }

  /** POST /_matrix/client/v3/delete_devices */
  @Post(stable('/delete_devices'))
  @Access({ ownAuth: 'users', auth: 'required' })
  async deleteMany(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(deleteManyBody)
    body: Infer<typeof deleteManyBody>,
  ): Promise<object> {
    await this.gate.require(requester, request, body, {
      description: 'remove devices from your account',
      mayReuse: true,
    });
    await this.devices.delete(requester.userId, body.devices, { requester });
    return {};
  }
}

/** What is not known is `null`: typed clients ask for the keys. */
function toWire(device: Device): object {
  return {
    device_id: device.deviceId,
    display_name: device.displayName ?? null,
    last_seen_ip: device.lastSeenIp ?? null,
    last_seen_ts: device.lastSeenMs ?? null,
    'org.matrix.msc3852.last_seen_user_agent': device.lastSeenUserAgent ?? null,
  };
}
