import { Injectable } from '@nestjs/common';
import { canonicalJson, InvalidEventError, parseJson, type VerifyKey } from '@rookery/events';
import {
  Destinations,
  FederationClient,
  KeyRing,
  parseAuthorizations,
  type RequestCredentials,
  type RequestSignatures,
  signedRequestBytes,
} from '@rookery/federation-client';
import { type JsonRules, type LateRequest, parseJsonInSlices, targetOnWire } from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger } from '@rookery/platform';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { UnprovenLimits } from './unproven-limits.js';

/** A request whose signature is right. */
export interface VerifiedRequest {
  /** Who signed it. */
  readonly origin: string;
  /** The body as it came, numbers that are not canonical as `NumberText`; `undefined` when there was none. */
  readonly content: JsonObject | undefined;
}

/** A signature with the key that it is to be checked with. */
interface KeyedSignature {
  readonly keyId: string;
  readonly signature: string;
  readonly key: VerifyKey;
  /** The key was known before. */
  readonly isKept: boolean;
}

/** That a signature is right. */
interface Proof {
  /** The body, where it had to be understood for that. */
  readonly content?: JsonObject;
}

/** Largest body of a server whose key was not known before, bytes: a transaction of fifty events of the largest size. */
const strangerBodyBytes = 4_194_304;
/** Largest body that was not written in its canonical form, bytes. */
const rewrittenBodyBytes = 4_194_304;
/** Most values of such a body: the canonical form is made before anything is proven. */
const rewrittenValues = 50_000;
/** Body that takes a while to copy, bytes. */
const largeBodyBytes = 1_048_576;
/** Longest string of a body, bytes: no PDU has a longer one than its 64 KiB, and messages to devices have some room. */
const maxStringBytes = 1_048_576;

const unauthorized = (message: string): MatrixError => MatrixError.unauthorized(message);

/** Nesting is judged for each event alone, so that one cannot spoil the transaction around it. */
const bodyRules: JsonRules = { maxDepth: Infinity, maxStringBytes, anyNumber: true, parse: parseJson };

/** Checks who a request of another server is from. @spec server-server-api#request-authentication */
@Injectable()
export class RequestVerifier {
  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly keys: KeyRing,
    private readonly client: FederationClient,
    private readonly destinations: Destinations,
    private readonly unproven: UnprovenLimits,
  ) {}

  /**
   * Reads the body only when there is a key to check it with, and understands it only when it is proven, as far as that can
   * be: what has no signature costs its bytes.
   * @param bodyLimitBytes of the route; a server whose key was not known before may send 4 MiB at most
   * @throws MatrixError 401 `M_UNAUTHORIZED` without a valid signature, 403 `M_FORBIDDEN` from a server that the settings
   *   do not allow, 400 `M_NOT_JSON` or `M_BAD_JSON` for a body that cannot have been signed, 413 `M_TOO_LARGE`
   *   (also for a string of more than 1 MiB),
   *   429 `M_LIMIT_EXCEEDED` when too many bytes of unproven requests are held, and for an address that has asked for too many
   *   keys or sent too much with wrong signatures
   */
  async verify(request: LateRequest, bodyLimitBytes: number): Promise<VerifiedRequest> {
    const signed = this.#signaturesOf(request);
    const { origin } = signed;
    await this.unproven.assertMayProve(request.ip, origin);
    const { isKept, key, ...signature } = await this.#signatureToCheck(request, signed);
    const credentials = { ...signed, ...signature };
    await request.readBody(isKept ? bodyLimitBytes : Math.min(bodyLimitBytes, strangerBodyBytes));
    const proof = await this.#prove(request, credentials, key);
    request.vouchFor(origin);
    const bytes = bodyOf(request);
    const content = proof.content ?? (bytes && contentOf(await parseJsonInSlices(bytes, bodyRules)));
    this.unproven.noteProven(request.ip, origin);
    this.destinations.alive(origin).catch((error: unknown) => {
      this.logger.error('Could not note that a server lives', { origin, err: error });
    });
    return { origin, content };
  }

  /** One of the signatures whose key holds, if possible without asking anybody; one is enough. */
  async #signatureToCheck(request: LateRequest, { origin, signatures }: RequestSignatures): Promise<KeyedSignature> {
    const nowTs = this.clock.nowMs();
    const known = new Set<string>();
    for (const one of signatures) {
      const kept = await this.keys.keptKey(origin, one.keyId);
      if (kept === undefined) continue;
      if (kept.validUntilTs >= nowTs) return { ...one, isKept: true, key: kept.key };
      known.add(one.keyId);
    }
    for (const one of signatures) {
      const name = `${origin} ${one.keyId.slice(0, 150)}`;
      const found = await this.unproven.lookUp(request.ip, name, () => this.keys.keyOf(origin, one.keyId, nowTs));
      if (found !== undefined && found.validUntilTs >= nowTs)
        return { ...one, isKept: known.has(one.keyId), key: found.key };
    }
    throw unauthorized(`The key ${signatures[0]?.keyId.slice(0, 150)} of ${origin} is not known`);
  }

  /** Checks the signature: by a key, or by the one that took its place. */
  async #prove(request: LateRequest, credentials: RequestCredentials, key: VerifyKey): Promise<Proof> {
    const { origin, keyId } = credentials;
    try {
      const proof = await this.#proofBy(key, request, credentials);
      if (proof !== undefined) return proof;
      const replacement = await this.unproven.lookUp(request.ip, `${origin} ${keyId.slice(0, 150)} again`, () =>
        this.keys.replacementOf(origin, keyId, key),
      );
      const holds = replacement !== undefined && replacement.validUntilTs >= this.clock.nowMs();
      const byReplacement = holds ? await this.#proofBy(replacement.key, request, credentials) : undefined;
      if (byReplacement !== undefined) return byReplacement;
      throw unauthorized(`The signature of ${origin} is not valid`);
    } catch (error) {
      await this.unproven.noteForged(request.ip, request.rawBody?.length ?? 0);
      throw error;
    }
  }

  /** `undefined` when the signature is not by that key. */
  async #proofBy(
    key: VerifyKey,
    request: LateRequest,
    { origin, destination, signature }: RequestCredentials,
  ): Promise<Proof | undefined> {
    const bytes = bodyOf(request);
    const uri = targetOnWire(this.config, request.url);
    const signedText = (canonicalContent: Uint8Array | undefined): Buffer =>
      signedRequestBytes({ method: request.method, uri, origin, destination }, canonicalContent);
    // Each step copies the body: no two of them in one turn of the event loop where that takes time.
    const isLarge = bytes !== undefined && bytes.length > largeBodyBytes;
    if (isLarge) await nextTurn();
    const signed = signedText(bytes);
    if (isLarge) await nextTurn();
    // Most servers send what they signed, byte by byte.
    if (await key.verifyInBackground(signed, signature)) return {};
    if (bytes === undefined || bytes.length > rewrittenBodyBytes) return undefined;
    const content = contentOf(await parseJsonInSlices(bytes, { ...bodyRules, maxValues: rewrittenValues }));
    if (!(await key.verifyInBackground(signedText(Buffer.from(canonicalOf(content))), signature))) return undefined;
    return { content };
  }

  #signaturesOf({ authorizations }: LateRequest): RequestSignatures {
    if (authorizations.length === 0) throw unauthorized('The request is not signed');
    const signed = parseAuthorizations(authorizations);
    if (signed === undefined) throw unauthorized('The Authorization header is not one of a server');
    const { origin, destination } = signed;
    if (!isValidServerName(origin)) throw unauthorized('The origin is not a server name');
    // Older servers do not say whom they talk to.
    if (destination !== undefined && destination !== this.config.serverName)
      throw unauthorized('The request is for another server');
    if (origin === this.config.serverName) throw unauthorized('A server makes no requests to itself');
    if (!this.client.allows(origin)) throw MatrixError.forbidden('Federation with your server is not allowed here');
    return signed;
  }
}

const bodyOf = ({ rawBody }: LateRequest): Buffer | undefined => (rawBody?.length === 0 ? undefined : rawBody);

function contentOf(content: unknown): JsonObject {
  if (!isJsonObject(content)) throw MatrixError.badJson('The body must be a JSON object');
  return content;
}

function canonicalOf(content: JsonObject): string {
  try {
    return canonicalJson(content);
  } catch (error) {
    if (error instanceof InvalidEventError) throw MatrixError.badJson('The body has no canonical form');
    throw error;
  }
}
