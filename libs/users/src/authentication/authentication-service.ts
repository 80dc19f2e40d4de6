import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { IpGuard, OutboundError, OutboundHttp, outboundOptionsOf } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config, Logger, Metrics, ServiceMetadata, SingleFlight } from '@rookery/platform';
import { secretHash } from '../common/secrets.js';

/** How long an answer about a token is believed. */
const tokenAgeMs = 120_000;
/** How long the service's description of itself is believed, before it is asked for again. */
const metadataAgeMs = 600_000;
const maxTokens = 20_000;
const timeoutMs = 10_000;
const maxBytes = 1_048_576;
const longestToken = 4_096;

const userScopes = new Set(['urn:matrix:client:api:*', 'urn:matrix:org.matrix.msc2967.client:api:*']);
const devicePrefixes = ['urn:matrix:client:device:', 'urn:matrix:org.matrix.msc2967.client:device:'];
const adminScope = 'urn:synapse:admin:*';

/** What the service says of an access token that is valid. */
export interface IntrospectedToken {
  /** The localpart of its user. */
  readonly localpart: string;
  readonly deviceId: string | undefined;
  readonly isAdmin: boolean;
}

interface Entry {
  readonly found: IntrospectedToken | undefined;
  readonly untilMs: number;
}

/**
 * The service to which the settings leave logins (`matrix_authentication_service`, MSC3861): it issues the access tokens, this
 * server asks it what they are worth.
 */
@Injectable()
export class AuthenticationService implements OnModuleDestroy {
  readonly #tokens: Cache<string, Entry>;
  readonly #asking = new SingleFlight<Entry>();
  readonly #times;
  readonly #metadata: ServiceMetadata<JsonObject>;
  #http: OutboundHttp | undefined;

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
    metrics: Metrics,
  ) {
    this.#times = metrics.histogram('synapse_api_auth_delegated_introspection_response');
    this.#metadata = new ServiceMetadata(clock, metadataAgeMs, () =>
      this.#request({ path: '.well-known/openid-configuration' }),
    );
    this.#tokens = new Cache(config, 'introspected_tokens', { invalidation: 'expires', max: 2 * maxTokens });
  }

  /** Whether logins are left to a service. */
  get isEnabled(): boolean {
    return this.config.get('matrix_authentication_service.enabled');
  }

  async onModuleDestroy(): Promise<void> {
    await this.#http?.close();
  }

  /**
   * Asks what a token is worth; an answer serves for two minutes, to requests side by side as well.
   * @returns `undefined` for a token that gives no rights to a user
   * @throws MatrixError 503 `M_UNKNOWN` when the service does not answer
   */
  async introspect(token: string): Promise<IntrospectedToken | undefined> {
    if (token.length > longestToken) return undefined;
    const key = secretHash(token);
    const known = this.#tokens.get(key);
    if (known && this.clock.nowMs() < known.untilMs) return known.found;
    // What fails is not kept: the next request asks anew.
    const answer = await this.#asking.run(key, async () => {
      const fresh = await this.#ask(token);
      this.#tokens.set(key, fresh);
      return fresh;
    });
    return answer.found;
  }

  /**
   * What the service says about itself, for clients (MSC2965), or has said last.
   * @throws MatrixError 404 `M_UNRECOGNIZED` where there is no service, 503 `M_UNKNOWN` when it has not answered yet
   */
  async metadata(): Promise<JsonObject> {
    if (!this.isEnabled) throw MatrixError.unrecognized();
    return this.#metadata.get();
  }

  /** Where a user allows new cross-signing keys. @throws MatrixError as {@link metadata} */
  async keyResetUrl(): Promise<string> {
    const { account_management_uri: uri, issuer } = await this.metadata();
    const url = typeof uri === 'string' ? uri : typeof issuer === 'string' ? issuer : this.#endpoint;
    return `${url}${url.includes('?') ? '&' : '?'}action=org.matrix.cross_signing_reset`;
  }

  async #ask(token: string): Promise<Entry> {
    const body = new URLSearchParams({ token, token_type_hint: 'access_token' }).toString();
    const answer = await this.#request({ path: 'oauth2/introspect', body });
    const lifetimeS = answer['expires_in'];
    const ageMs = typeof lifetimeS === 'number' ? Math.min(tokenAgeMs, Math.max(0, lifetimeS) * 1_000) : tokenAgeMs;
    return { found: tokenIn(answer), untilMs: this.clock.nowMs() + ageMs };
  }

  async #request({ path, body }: { readonly path: string; readonly body?: string }): Promise<JsonObject> {
    // The operator chose the address; it often lies in the operator's own network.
    const options = outboundOptionsOf(this.config, '');
    this.#http ??= new OutboundHttp({
      ...{ ...options, userAgent: 'Rookery', guard: new IpGuard([]) },
      forceHttp2: this.config.get('matrix_authentication_service.force_http2'),
    });
    const posted = body !== undefined && {
      method: 'POST' as const,
      body,
      headers: {
        accept: 'application/json',
        authorization: `Bearer ${this.config.get('matrix_authentication_service.secret') ?? ''}`,
        'content-type': 'application/x-www-form-urlencoded',
        'x-mas-supports-device-id': '1',
      },
    };
    const askedMs = this.clock.monotonicMs();
    let code = 'ERR';
    try {
      const { status, body: bytes } = await this.#http.request({
        url: this.#endpoint + path,
        headers: { accept: 'application/json' },
        timeoutMs,
        maxBytes,
        maxRedirects: 0,
        ...posted,
      });
      code = String(status);
      const answer: unknown = status === 200 ? JSON.parse(bytes.toString('utf8')) : undefined;
      if (isJsonObject(answer)) return answer;
      this.logger.error('The authentication service gave no sensible answer', { path, status });
    } catch (error) {
      if (!(error instanceof OutboundError) && !(error instanceof SyntaxError)) throw error;
      this.logger.error('The authentication service cannot be asked', { path, reason: error.message });
    } finally {
      if (posted) this.#times.observe({ code }, (this.clock.monotonicMs() - askedMs) / 1_000);
    }
    throw MatrixError.unavailable('The authentication service cannot be reached');
  }

  get #endpoint(): string {
    return this.config.get('matrix_authentication_service.endpoint').replace(/\/*$/, '/');
  }
}

function tokenIn(answer: JsonObject): IntrospectedToken | undefined {
  const { active, username, scope } = answer;
  if (active !== true || typeof username !== 'string' || username === '' || typeof scope !== 'string') return undefined;
  const scopes = scope.split(' ');
  if (!scopes.some((one) => userScopes.has(one))) return undefined;
  const named = scopes.flatMap((one) => {
    const prefix = devicePrefixes.find((start) => one.startsWith(start));
    return prefix === undefined ? [] : [one.slice(prefix.length)];
  });
  const { device_id: explicit } = answer;
  const deviceId = typeof explicit === 'string' && explicit !== '' ? explicit : named[0];
  // Who acts as two devices at once acts as none.
  if (named.length > 1 || (deviceId !== undefined && Buffer.byteLength(deviceId) > 255)) return undefined;
  return { localpart: username, deviceId, isAdmin: scopes.includes(adminScope) };
}
