import { Controller, Get, Param, Post } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
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
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { MembershipReader } from '@rookery/rooms';
import { remoteTimeoutOf } from '../common/limits.js';
import { CrossSigningService } from '../cross-signing/cross-signing.service.js';
import { SignatureService } from '../device-keys/signature.service.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { SyncPositions } from '../device-lists/sync-positions.js';
import { DeviceKeyService } from '../device-keys/device-key.service.js';
import { OneTimeKeyService } from '../device-keys/one-time-key.service.js';

const querySchema = json.object({ device_keys: json.anyObject() });
const claimSchema = json.object({ one_time_keys: json.anyObject() });
const crossSigning = (rest: string): string[] => client(['v3', 'unstable'], rest);

/** Largest upload of keys, query for keys and claim of keys, bytes. */
const bodyLimitBytes = 1_048_576;
/** Largest upload of signatures, bytes. */
const signaturesBytes = 2_097_152;
/** Most values and keys of such an upload: a thousand objects with what belongs to them. */
const signatureValues = 50_000;
/** Largest upload of cross-signing keys, bytes. */
const crossSigningBytes = 65_536;

const changesQuery = queryOf({
  from: param.string('The position after which changes count.', { required: true }),
  to: param.string('The position up to which changes count.', { required: true }),
});

@Controller()
export class KeysController {
  constructor(
    private readonly deviceKeys: DeviceKeyService,
    private readonly oneTimeKeys: OneTimeKeyService,
    private readonly deviceLists: DeviceListService,
    private readonly crossSigning: CrossSigningService,
    private readonly signatures: SignatureService,
    private readonly memberships: MembershipReader,
    private readonly positions: SyncPositions,
  ) {}

  /** POST /_matrix/client/v3/keys/upload */
  @Post(stable('/keys/upload'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes })
  upload(@Who() requester: Requester, @JsonBody() body: JsonObject): Promise<object> {
    return this.#upload(requester, requester.deviceId, body);
  }

  /** POST /_matrix/client/v3/keys/upload/{deviceId}: as clients once did. */
  @Post(stable('/keys/upload/:deviceId'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes })
  uploadFor(
    @Who() requester: Requester,
    @Param('deviceId') deviceId: string,
    @JsonBody() body: JsonObject,
  ): Promise<object> {
    return this.#upload(requester, deviceId, body);
  }

  /** POST /_matrix/client/v3/keys/query */
  @Post(stable('/keys/query'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  query(@Who() requester: Requester, @JsonBody(querySchema) body: Infer<typeof querySchema>): Promise<object> {
    return this.deviceKeys.query(requester.userId, body.device_keys, remoteTimeoutOf(body));
  }

  /** POST /_matrix/client/v3/keys/claim */
  @Post(stable('/keys/claim'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes })
  async claim(@JsonBody(claimSchema) body: Infer<typeof claimSchema>): Promise<object> {
    const { keys, failures } = await this.oneTimeKeys.claim(body.one_time_keys, remoteTimeoutOf(body));
    return { one_time_keys: keys, failures };
  }

  /** GET /_matrix/client/v3/keys/changes */
  @Get(stable('/keys/changes'))
  @Access({ auth: 'required', anyProcess: true })
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

  /** POST /_matrix/client/v3/keys/device_signing/upload */
  @Post(crossSigning('/keys/device_signing/upload'))
  @Access({ auth: 'required', bodyLimitBytes: crossSigningBytes })
  async uploadCrossSigning(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody() body: JsonObject,
  ): Promise<object> {
    await this.crossSigning.upload(requester, request, body);
    return {};
  }

  /** POST /_matrix/client/v3/keys/signatures/upload */
  @Post(crossSigning('/keys/signatures/upload'))
  @Access({ auth: 'required', bodyLimitBytes: signaturesBytes })
  async uploadSignatures(
    @Who() requester: Requester,
    @JsonBody(undefined, { maxValues: signatureValues }) body: JsonObject,
  ): Promise<object> {
    return { failures: await this.signatures.upload(requester.userId, body) };
  }

  async #upload(requester: Requester, deviceId: string | undefined, body: JsonObject): Promise<object> {
    if (requester.deviceId === undefined) throw MatrixError.missingParam('Keys belong to a device; you act as none');
    if (deviceId !== requester.deviceId) throw MatrixError.forbidden('You can upload keys of your own device only');
    return { one_time_key_counts: await this.deviceKeys.upload(requester.userId, deviceId, body) };
  }
}
