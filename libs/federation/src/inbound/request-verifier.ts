import { Injectable } from '@nestjs/common';
import { canonicalJson, InvalidEventError, parseJson } from '@rookery/events';
import {
  Destinations,
  FederationClient,
  KeyRing,
  parseAuthorization,
  type RequestCredentials,
  signedRequestText,
} from '@rookery/federation-client';
import type { InboundRequest } from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger } from '@rookery/platform';
import { isUtf8 } from 'node:buffer';

/** A request whose signature is right. */
export interface VerifiedRequest {
  /** Who signed it. */
  readonly origin: string;
  /** The body as it came, numbers that are not canonical as `NumberText`; `undefined` when there was none. */
  readonly content: JsonObject | undefined;
}

const unauthorized = (message: string): MatrixError => new MatrixError(401, 'M_UNAUTHORIZED', message);

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
  ) {}

  /**
   * @throws MatrixError 401 `M_UNAUTHORIZED` without a valid signature, 403 `M_FORBIDDEN` from a server that the settings
   *   do not allow, 400 `M_NOT_JSON` or `M_BAD_JSON` for a body that cannot have been signed
   */
  async verify(request: InboundRequest): Promise<VerifiedRequest> {
    const credentials = this.#credentialsOf(request);
    const { origin, destination, keyId, signature } = credentials;
    const content = contentOf(request.rawBody);
    const text = signedRequestText({
      ...{ method: request.method, uri: request.url, origin, destination },
      canonicalContent: content === undefined ? undefined : canonicalOf(content),
    });
    const nowTs = this.clock.nowMs();
    const known = await this.keys.keyOf(origin, keyId, nowTs);
    if (known === undefined || known.validUntilTs < nowTs)
      throw unauthorized(`The key ${keyId.slice(0, 150)} of ${origin} is not known`);
    if (!(await known.key.verifyInBackground(text, signature)))
      throw unauthorized(`The signature of ${origin} is not valid`);
    this.destinations.alive(origin).catch((error: unknown) => {
      this.logger.error('Could not note that a server lives', { origin, err: error });
    });
    return { origin, content };
  }

  #credentialsOf({ headers }: InboundRequest): RequestCredentials {
    const header = headers['authorization'];
    if (typeof header !== 'string') throw unauthorized('The request is not signed');
    const credentials = parseAuthorization(header);
    if (credentials === undefined) throw unauthorized('The Authorization header is not one of a server');
    const { origin, destination } = credentials;
    if (!isValidServerName(origin)) throw unauthorized('The origin is not a server name');
    // Older servers do not say whom they talk to.
    if (destination !== undefined && destination !== this.config.serverName)
      throw unauthorized('The request is for another server');
    if (origin === this.config.serverName) throw unauthorized('A server makes no requests to itself');
    if (!this.client.allows(origin)) throw MatrixError.forbidden('Federation with your server is not allowed here');
    return credentials;
  }
}

/** The body as it came: what was signed, digit by digit. */
function contentOf(bytes: Buffer | undefined): JsonObject | undefined {
  if (bytes === undefined || bytes.length === 0) return undefined;
  let content: unknown;
  try {
    content = isUtf8(bytes) ? parseJson(bytes.toString('utf8')) : undefined;
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
  }
  if (content === undefined) throw new MatrixError(400, 'M_NOT_JSON', 'The body is not valid JSON');
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
