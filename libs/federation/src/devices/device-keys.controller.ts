import { Controller, Get, Param, Post } from '@nestjs/common';
import { DeviceKeyService, e2eeLimits, OneTimeKeyService } from '@rookery/e2ee';
import { HttpReply, type Infer, json } from '@rookery/http';
import { domainOf, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Metrics } from '@rookery/platform';
import { FederationAccess, Origin, SignedContent } from '../inbound/federation-access.js';
import { DeviceListNews } from './device-list-news.js';

/** Largest query and claim, bytes. */
const bodyLimitBytes = 1_048_576;

const queryBody = json.object({
  device_keys: json.required(
    'Ids of devices, by user; an empty list for all devices of a user.',
    json.record(json.array(json.string())),
  ),
});
const claimBody = json.object({
  one_time_keys: json.required(
    'The algorithm of the key, by user and device.',
    json.record(json.record(json.string())),
  ),
});

/** What other servers ask about devices of users of this one. */
@Controller()
export class DeviceKeysForServersController {
  readonly #count;

  constructor(
    private readonly config: Config,
    private readonly deviceKeys: DeviceKeyService,
    private readonly oneTimeKeys: OneTimeKeyService,
    private readonly news: DeviceListNews,
    metrics: Metrics,
  ) {
    this.#count = metrics.counter('synapse_federation_server_received_queries');
  }

  /** GET /_matrix/federation/v1/user/devices/{userId} */
  @Get('/_matrix/federation/v1/user/devices/:userId')
  @FederationAccess()
  async devices(@Origin() origin: string, @Param('userId') userId: string): Promise<JsonObject> {
    this.#count.inc({ type: 'user_devices' });
    if (!this.#isLocal(userId)) throw MatrixError.invalidParam('This is not a user of this server');
    return this.deviceKeys.devicesForServer(userId, await this.news.lastTold(origin, userId));
  }

  /** POST /_matrix/federation/v1/user/keys/query */
  @Post('/_matrix/federation/v1/user/keys/query')
  @FederationAccess({ bodyLimitBytes, largeAnswer: true })
  async query(@SignedContent(queryBody) content: Infer<typeof queryBody>): Promise<object> {
    this.#count.inc({ type: 'client_device_keys' });
    const wanted = new Map(this.#users(content.device_keys));
    const { device_keys, master_keys, self_signing_keys } = await this.deviceKeys.forServer(wanted);
    return { device_keys, master_keys, self_signing_keys };
  }

  /** POST /_matrix/federation/v1/user/keys/claim */
  @Post('/_matrix/federation/v1/user/keys/claim')
  @FederationAccess({ bodyLimitBytes })
  async claim(@SignedContent(claimBody) content: Infer<typeof claimBody>): Promise<HttpReply> {
    this.#count.inc({ type: 'client_one_time_keys' });
    const wanted = this.#users(content.one_time_keys);
    const count = wanted.reduce((sum, [, devices]) => sum + Object.keys(devices).length, 0);
    if (count > e2eeLimits.claimedDevices)
      throw MatrixError.invalidParam(`Not more than ${e2eeLimits.claimedDevices} keys can be claimed at once`);
    return HttpReply.large({ one_time_keys: await this.oneTimeKeys.claimLocal(wanted) });
  }

  /** The local users among what is asked for. */
  #users<T>(wanted: Readonly<Record<string, T>>): [string, T][] {
    const users = Object.entries(wanted);
    if (users.length > e2eeLimits.queriedUsers)
      throw MatrixError.invalidParam(`Not more than ${e2eeLimits.queriedUsers} users can be asked about at once`);
    return users.filter(([userId]) => this.#isLocal(userId));
  }

  #isLocal(userId: string): boolean {
    return isValidUserId(userId) && domainOf(userId) === this.config.serverName;
  }
}
