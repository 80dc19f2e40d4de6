import { Controller, Param, Post } from '@nestjs/common';
import { Access, client, Inbound, type InboundRequest, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { UserAuthGate } from '@rookery/users';
import { CrossSigningService } from '../cross-signing/cross-signing.service.js';
import { KeyUploads } from '../device-keys/key-uploads.service.js';
import { SignatureService } from '../device-keys/signature.service.js';

const crossSigning = (rest: string): string[] => client(['v3', 'unstable'], rest);

/** Largest upload of keys, bytes. */
const bodyLimitBytes = 1_048_576;
/** Largest upload of signatures, bytes. */
const signaturesBytes = 2_097_152;
/** Most values and keys of such an upload: a thousand objects with what belongs to them. */
const signatureValues = 50_000;
/** Largest upload of cross-signing keys, bytes. */
const crossSigningBytes = 65_536;

/** Its outside alone: what is inside is looked at once, by those who store it. */
const uploadBody = json.object({
  device_keys: json.optional('The identity keys of the device, signed by it.', json.anyObject()),
  one_time_keys: json.optional('One-time keys, by algorithm and id.', json.anyObject()),
  fallback_keys: json.optional('Fallback keys, by algorithm and id: one of each algorithm.', json.anyObject()),
});
const key = json.anyObject();
const crossSigningBody = json.object({
  auth: UserAuthGate.field,
  master_key: json.optional('The key that signs the others.', key),
  self_signing_key: json.optional("The key that signs the user's own devices, signed by the master key.", key),
  user_signing_key: json.optional('The key that signs the master keys of other users, signed by the master key.', key),
});
const signaturesBody = json.described(
  'Signed objects, by user and by id of the device or public key: what is there already, with signatures added.',
  json.record(json.record(json.unknown())),
);

/** Keys that clients upload, and signatures. */
@Controller()
export class KeyUploadsController {
  constructor(
    private readonly uploads: KeyUploads,
    private readonly crossSigning: CrossSigningService,
    private readonly signatures: SignatureService,
  ) {}

  /** POST /_matrix/client/v3/keys/upload */
  @Post(stable('/keys/upload'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  upload(@Who() requester: Requester, @JsonBody(uploadBody) body: Infer<typeof uploadBody>): Promise<object> {
    return this.#upload(requester, requester.deviceId, body);
  }

  /** POST /_matrix/client/v3/keys/upload/{deviceId}: as clients once did. */
  @Post(stable('/keys/upload/:deviceId'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  uploadFor(
    @Who() requester: Requester,
    @Param('deviceId') deviceId: string,
    @JsonBody(uploadBody) body: Infer<typeof uploadBody>,
  ): Promise<object> {
    return this.#upload(requester, deviceId, body);
  }

  /** POST /_matrix/client/v3/keys/device_signing/upload */
  @Post(crossSigning('/keys/device_signing/upload'))
  @Access({ auth: 'required', bodyLimitBytes: crossSigningBytes })
  async uploadCrossSigning(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(crossSigningBody) body: Infer<typeof crossSigningBody>,
  ): Promise<object> {
    await this.crossSigning.upload(requester, request, body);
    return {};
  }

  /** POST /_matrix/client/v3/keys/signatures/upload */
  @Post(crossSigning('/keys/signatures/upload'))
  @Access({ auth: 'required', bodyLimitBytes: signaturesBytes, anyProcess: true })
  async uploadSignatures(
    @Who() requester: Requester,
    @JsonBody(signaturesBody, { maxValues: signatureValues }) body: Infer<typeof signaturesBody>,
  ): Promise<object> {
    return { failures: await this.signatures.upload(requester.userId, body) };
  }

  async #upload(requester: Requester, deviceId: string | undefined, body: JsonObject): Promise<object> {
    if (requester.deviceId === undefined) throw MatrixError.missingParam('Keys belong to a device; you act as none');
    if (deviceId !== requester.deviceId) throw MatrixError.forbidden('You can upload keys of your own device only');
    return { one_time_key_counts: await this.uploads.upload(requester.userId, deviceId, body) };
  }
}
