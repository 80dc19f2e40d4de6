import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  HttpReply,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
  stable,
  Who,
} from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { MembershipReader } from '@rookery/rooms';
import { remoteTimeoutOf } from '../common/limits.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { SyncPositions } from '../device-lists/sync-positions.js';
import { DeviceKeyService } from '../device-keys/device-key.service.js';
import { OneTimeKeyService } from '../device-keys/one-time-key.service.js';

const timeout = json.optional(
  'How long to wait for other servers, ms; what is no number counts as absent.',
  json.unknown(),
);
const querySchema = json.object({
  device_keys: json.required('Ids of devices, by user; an empty list for all devices of a user.', json.anyObject()),
  timeout,
});
const claimSchema = json.object({
  one_time_keys: json.required('The algorithm of the key, by user and device.', json.anyObject()),
  timeout,
});

/** Largest query for keys and claim of keys, bytes. */
const bodyLimitBytes = 1_048_576;
const changesQuery = queryOf({
  from: param.string('The position after which changes count.', { required: true }),
  to: param.string('The position up to which changes count.', { required: true }),
});

/** Keys that clients ask for. */
@Controller()
export class KeysController {
  constructor(
    private readonly deviceKeys: DeviceKeyService,
    private readonly oneTimeKeys: OneTimeKeyService,
    private readonly deviceLists: DeviceListService,
    private readonly memberships: MembershipReader,
    private readonly positions: SyncPositions,
  ) {}

  /** POST /_matrix/client/v3/keys/query */
  @Post(stable('/keys/query'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  async query(@Who() requester: Requester, @JsonBody(querySchema) body: Infer<typeof querySchema>): Promise<HttpReply> {
    return HttpReply.large(await this.deviceKeys.query(requester.userId, body.device_keys, remoteTimeoutOf(body)));
  }

  /** POST /_matrix/client/v3/keys/claim */
  @Post(stable('/keys/claim'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  async claim(@Who() requester: Requester, @JsonBody(claimSchema) body: Infer<typeof claimSchema>): Promise<HttpReply> {
    const { keys, failures } = await this.oneTimeKeys.claim(
      requester.userId,
      body.one_time_keys,
      remoteTimeoutOf(body),
    );
    return HttpReply.large({ one_time_keys: keys, failures });
  }

  /** GET /_matrix/client/v3/keys/changes */
  @Get(stable('/keys/changes'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async changes(
    @Who() requester: Requester,
    @Query(changesQuery) query: InferQuery<typeof changesQuery>,
  ): Promise<object> {
    const { userId } = requester;
    const after = this.positions.parse(query.from);
    const upTo = this.positions.parse(query.to);
    const joinedRooms = new Set(await this.memberships.joinedRoomIds(userId));
    return this.deviceLists.changes({ userId, joinedRooms, after, upTo });
  }
}
