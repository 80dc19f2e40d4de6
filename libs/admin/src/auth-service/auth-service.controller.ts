import { Controller, Get, Post, UseGuards } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
} from '@rookery/http';
import { AccountService } from '@rookery/users';
import { AuthServiceGuard } from './auth-service-guard.js';
import { localpart, provisionSchema, ServiceAccounts } from './service-accounts.service.js';
import { deviceFields, deviceSchema, ServiceDevices } from './service-devices.service.js';

const byLocalpart = json.object({ localpart });
const deletion = json.object({
  localpart,
  erase: json.required('Whether what the user has written is hidden from those who join later.', json.boolean()),
});
const naming = json.object({ localpart, displayname: json.required('The display name from now on.', json.string()) });
const deviceName = json.object({
  ...deviceFields,
  display_name: json.required('The name from now on.', json.string()),
});
const deviceList = json.object({
  localpart,
  devices: json.required(
    'Ids of all devices that the user has from now on; others are signed out.',
    json.array(json.string(), { maxItems: 10_000 }),
  ),
});

const path = (name: string): string => `/_synapse/mas/${name}`;

const userQuery = queryOf({ localpart: param.string('The local part of a user id.', { required: true }) });

/** What the service that authenticates users tells this server (MSC3861). It knows the shared secret; nobody else gets in. */
@Controller()
@Access({ auth: 'none', lateBody: true })
@UseGuards(AuthServiceGuard)
export class AuthServiceController {
  constructor(
    private readonly service: ServiceAccounts,
    private readonly devices: ServiceDevices,
    private readonly accounts: AccountService,
  ) {}

  /** GET /_synapse/mas/query_user */
  @Get(path('query_user'))
  async queryUser(@Query(userQuery) query: InferQuery<typeof userQuery>): Promise<object> {
    return this.service.describe(query.localpart);
  }

  /** GET /_synapse/mas/is_localpart_available */
  @Get(path('is_localpart_available'))
  async isLocalpartAvailable(@Query(userQuery) query: InferQuery<typeof userQuery>): Promise<object> {
    await this.accounts.checkAvailable(query.localpart, { exact: true });
    return {};
  }

  /** POST /_synapse/mas/provision_user */
  @Post(path('provision_user'))
  async provisionUser(
    @Inbound() request: InboundRequest,
    @JsonBody(provisionSchema) body: Infer<typeof provisionSchema>,
  ): Promise<object> {
    return HttpReply.json((await this.service.provision(body, request)) ? 201 : 200, {});
  }

  /** POST /_synapse/mas/delete_user */
  @Post(path('delete_user'))
  async deleteUser(
    @Inbound() request: InboundRequest,
    @JsonBody(deletion) body: Infer<typeof deletion>,
  ): Promise<object> {
    await this.service.delete(body.localpart, body.erase, request);
    return {};
  }

  /** POST /_synapse/mas/reactivate_user */
  @Post(path('reactivate_user'))
  async reactivateUser(
    @Inbound() request: InboundRequest,
    @JsonBody(byLocalpart) body: Infer<typeof byLocalpart>,
  ): Promise<object> {
    await this.service.reactivate(body.localpart, request);
    return {};
  }

  /** POST /_synapse/mas/set_displayname */
  @Post(path('set_displayname'))
  async setDisplayName(
    @Inbound() request: InboundRequest,
    @JsonBody(naming) body: Infer<typeof naming>,
  ): Promise<object> {
    await this.service.setProfile(body.localpart, { displayname: body.displayname }, request);
    return {};
  }

  /** POST /_synapse/mas/unset_displayname */
  @Post(path('unset_displayname'))
  async unsetDisplayName(
    @Inbound() request: InboundRequest,
    @JsonBody(byLocalpart) body: Infer<typeof byLocalpart>,
  ): Promise<object> {
    await this.service.setProfile(body.localpart, { displayname: '' }, request);
    return {};
  }

  /** POST /_synapse/mas/allow_cross_signing_reset */
  @Post(path('allow_cross_signing_reset'))
  async allowCrossSigningReset(@JsonBody(byLocalpart) body: Infer<typeof byLocalpart>): Promise<object> {
    await this.service.allowKeyReset(body.localpart);
    return {};
  }

  /** POST /_synapse/mas/upsert_device */
  @Post(path('upsert_device'))
  async upsertDevice(@JsonBody(deviceSchema) body: Infer<typeof deviceSchema>): Promise<object> {
    const isNew = await this.devices.upsert(body);
    return HttpReply.json(isNew ? 201 : 200, {});
  }

  /** POST /_synapse/mas/delete_device */
  @Post(path('delete_device'))
  async deleteDevice(@JsonBody(deviceSchema) body: Infer<typeof deviceSchema>): Promise<object> {
    await this.devices.delete(body);
    return new HttpReply(204, {}, undefined);
  }

  /** POST /_synapse/mas/update_device_display_name */
  @Post(path('update_device_display_name'))
  async renameDevice(@JsonBody(deviceName) body: Infer<typeof deviceName>): Promise<object> {
    await this.devices.rename(body);
    return {};
  }

  /** POST /_synapse/mas/sync_devices */
  @Post(path('sync_devices'))
  async syncDevices(@JsonBody(deviceList) body: Infer<typeof deviceList>): Promise<object> {
    await this.devices.sync(body.localpart, body.devices);
    return {};
  }
}
