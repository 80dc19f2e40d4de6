import { createHash, timingSafeEqual } from 'node:crypto';
import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  compileSchema,
  HttpReply,
  Inbound,
  type InboundRequest,
  json,
  type LateRequest,
  requiredQueryString,
} from '@rookery/http';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { AccountService } from '@rookery/users';
import { deviceFields, deviceSchema, localpart, provisionSchema, ServiceAccounts } from './service-accounts.service.js';

const provision = compileSchema(provisionSchema);
const device = compileSchema(deviceSchema);
const byLocalpart = compileSchema(json.object({ localpart }));
const deletion = compileSchema(json.object({ localpart, erase: json.boolean() }));
const naming = compileSchema(json.object({ localpart, displayname: json.string() }));
const deviceName = compileSchema(json.object({ ...deviceFields, display_name: json.string() }));
const deviceList = compileSchema(json.object({ localpart, devices: json.array(json.string(), { maxItems: 10_000 }) }));

const path = (name: string): string => `/_synapse/mas/${name}`;

/** What the service that authenticates users tells this server (MSC3861). It knows the shared secret; nobody else gets in. */
@Controller()
@Access({ auth: 'none', lateBody: true })
export class AuthServiceController {
  readonly #secret: Buffer;

  constructor(
    private readonly service: ServiceAccounts,
    private readonly accounts: AccountService,
    config: Config,
  ) {
    this.#secret = digest(config.get('matrix_authentication_service.secret') ?? '');
  }

  /** GET /_synapse/mas/query_user */
  @Get(path('query_user'))
  async queryUser(@Inbound() request: InboundRequest): Promise<object> {
    this.#authorize(request);
    return this.service.describe(requiredQueryString(request, 'localpart'));
  }

  /** GET /_synapse/mas/is_localpart_available */
  @Get(path('is_localpart_available'))
  async isLocalpartAvailable(@Inbound() request: InboundRequest): Promise<object> {
    this.#authorize(request);
    await this.accounts.checkAvailable(requiredQueryString(request, 'localpart'));
    return {};
  }

  /** POST /_synapse/mas/provision_user */
  @Post(path('provision_user'))
  async provisionUser(@Inbound() request: LateRequest): Promise<object> {
    const body = await this.#read(request, provision);
    return HttpReply.json((await this.service.provision(body, request)) ? 201 : 200, {});
  }

  /** POST /_synapse/mas/delete_user */
  @Post(path('delete_user'))
  async deleteUser(@Inbound() request: LateRequest): Promise<object> {
    const body = await this.#read(request, deletion);
    await this.service.delete(body.localpart, body.erase, request);
    return {};
  }

  /** POST /_synapse/mas/reactivate_user */
  @Post(path('reactivate_user'))
  async reactivateUser(@Inbound() request: LateRequest): Promise<object> {
    const { localpart } = await this.#read(request, byLocalpart);
    await this.service.reactivate(localpart, request);
    return {};
  }

  /** POST /_synapse/mas/set_displayname */
  @Post(path('set_displayname'))
  async setDisplayName(@Inbound() request: LateRequest): Promise<object> {
    const body = await this.#read(request, naming);
    await this.service.setProfile(body.localpart, { displayname: body.displayname }, request);
    return {};
  }

  /** POST /_synapse/mas/unset_displayname */
  @Post(path('unset_displayname'))
  async unsetDisplayName(@Inbound() request: LateRequest): Promise<object> {
    const { localpart } = await this.#read(request, byLocalpart);
    await this.service.setProfile(localpart, { displayname: '' }, request);
    return {};
  }

  /** POST /_synapse/mas/allow_cross_signing_reset */
  @Post(path('allow_cross_signing_reset'))
  async allowCrossSigningReset(@Inbound() request: LateRequest): Promise<object> {
    const { localpart } = await this.#read(request, byLocalpart);
    await this.service.allowKeyReset(localpart);
    return {};
  }

  /** POST /_synapse/mas/upsert_device */
  @Post(path('upsert_device'))
  async upsertDevice(@Inbound() request: LateRequest): Promise<object> {
    const isNew = await this.service.upsertDevice(await this.#read(request, device));
    return HttpReply.json(isNew ? 201 : 200, {});
  }

  /** POST /_synapse/mas/delete_device */
  @Post(path('delete_device'))
  async deleteDevice(@Inbound() request: LateRequest): Promise<object> {
    await this.service.deleteDevice(await this.#read(request, device));
    return new HttpReply(204, {}, undefined);
  }

  /** POST /_synapse/mas/update_device_display_name */
  @Post(path('update_device_display_name'))
  async renameDevice(@Inbound() request: LateRequest): Promise<object> {
    await this.service.renameDevice(await this.#read(request, deviceName));
    return {};
  }

  /** POST /_synapse/mas/sync_devices */
  @Post(path('sync_devices'))
  async syncDevices(@Inbound() request: LateRequest): Promise<object> {
    const body = await this.#read(request, deviceList);
    await this.service.syncDevices(body.localpart, body.devices);
    return {};
  }

  /** @throws MatrixError 403 `M_FORBIDDEN` */
  #authorize({ headers }: InboundRequest): void {
    const header = String(headers['authorization'] ?? '');
    // No pattern that looks for the end of the secret: with many spaces that takes long, and anybody may send them.
    const given = /^Bearer /i.test(header) ? header.slice('Bearer '.length).trim() : '';
    if (given === '' || !timingSafeEqual(digest(given), this.#secret))
      throw MatrixError.forbidden('This is for the authentication service only');
  }

  /** The body of a request of the service. Nobody else learns what is wrong with theirs. */
  async #read<Body>(request: LateRequest, check: (value: unknown) => Body): Promise<Body> {
    this.#authorize(request);
    await request.readBody(bodyLimitBytes);
    const body = await request.json();
    if (body === undefined) throw MatrixError.missingBody();
    if (!isJsonObject(body)) throw MatrixError.badJson('The body must be a JSON object');
    return check(body);
  }
}

/** Largest body of the service, bytes. */
const bodyLimitBytes = 1_048_576;

const digest = (secret: string): Buffer => createHash('sha256').update(secret).digest();
