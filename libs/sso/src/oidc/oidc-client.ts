import { isJsonObject } from '@rookery/matrix-types';
import { OutboundError } from '@rookery/http';
import type { Clock, OidcProviderSetting, ServiceMetadata } from '@rookery/platform';
import type * as OpenIdClient from 'openid-client';
import { isLoopback } from '../common/client-addresses.js';
import { providerError, SsoError } from '../common/sso-error.js';
import type { ProviderHttp } from '../providers/provider-http.js';
import { providerMetadata } from '../providers/provider-metadata.js';
import type { SignedClientSecret } from './client-secret.js';
import type { Claims, OidcIdentity } from './oidc-claims.js';

/** Key sets for logouts are fetched again when they are older. */
const keysMs = 60_000;
/** How far clocks may differ. */
const toleranceSeconds = 120;

/** What a sign-on that has begun must find again. */
export interface OidcChecks {
  readonly state: string;
  readonly nonce: string;
  /** Where the proof key is used. */
  readonly verifier?: string | undefined;
}

interface Ready {
  readonly library: typeof OpenIdClient;
  readonly configuration: OpenIdClient.Configuration;
  readonly metadata: OpenIdClient.ServerMetadata;
}

/** One OpenID Connect or OAuth2 provider, as its client. The protocol's library is loaded at the first sign-on. */
export class OidcClient {
  readonly #ready: ServiceMetadata<Ready>;
  #keys: { readonly sinceMs: number; readonly set: Promise<unknown> } | undefined;

  constructor(
    private readonly setting: OidcProviderSetting,
    private readonly http: ProviderHttp,
    private readonly clock: Clock,
    private readonly signedSecret: SignedClientSecret | undefined,
  ) {
    this.#ready = providerMetadata(clock, () => this.#prepare());
  }

  /** Whether the provider speaks OpenID Connect, rather than OAuth2 alone. */
  get isOpenId(): boolean {
    return this.setting.scopes.includes('openid');
  }

  /**
   * Where to send the browser.
   * @throws SsoError `provider_unavailable`
   */
  async authorizationUrl(redirectUri: string, checks: OidcChecks, more: Claims): Promise<string> {
    const { library, configuration } = await this.#ready.get();
    const { verifier } = checks;
    return library.buildAuthorizationUrl(configuration, {
      ...this.setting.additional_authorization_parameters,
      ...(more as Record<string, string>),
      client_id: this.setting.client_id,
      scope: this.setting.scopes.join(' '),
      response_type: 'code',
      redirect_uri: redirectUri,
      state: checks.state,
      ...(this.isOpenId ? { nonce: checks.nonce } : {}),
      ...(verifier === undefined
        ? {}
        : { code_challenge: await library.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256' }),
    }).href;
  }

  /** Whether to use a proof key. @throws SsoError `provider_unavailable` */
  async usesPkce(): Promise<boolean> {
    if (this.setting.pkce_method !== 'auto') return this.setting.pkce_method === 'always';
    const { metadata } = await this.#ready.get();
    return metadata.code_challenge_methods_supported?.includes('S256') ?? false;
  }

  /** The provider's metadata. @throws SsoError `provider_unavailable` */
  async metadata(): Promise<OpenIdClient.ServerMetadata> {
    return (await this.#ready.get()).metadata;
  }

  /**
   * The provider's key set. Strangers can make us ask for it, so it is fetched once a minute at most.
   * @throws SsoError, OutboundError
   */
  keys(): Promise<unknown> {
    const nowMs = this.clock.monotonicMs();
    if (!this.#keys || nowMs - this.#keys.sinceMs >= keysMs) this.#keys = { sinceMs: nowMs, set: this.#fetchKeys() };
    return this.#keys.set;
  }

  async #fetchKeys(): Promise<unknown> {
    const { metadata } = await this.#ready.get();
    const { status, body } = await this.http.request({
      url: metadata.jwks_uri ?? '',
      headers: { accept: 'application/json' },
    });
    try {
      if (status === 200) return JSON.parse(body.toString('utf8'));
    } catch {
      // Falls through: whatever it is, it is no key set.
    }
    throw SsoError.unavailable(new Error(`The key set's address answered with status ${status}`));
  }

  /**
   * Exchanges the code of an answer for what the provider says of the person.
   * @param answer our callback with the answer's parameters
   * @throws SsoError
   */
  async identify(answer: URL, checks: OidcChecks): Promise<OidcIdentity> {
    const { library, configuration } = await this.#ready.get();
    let tokens: Awaited<ReturnType<typeof OpenIdClient.authorizationCodeGrant>>;
    try {
      tokens = await library.authorizationCodeGrant(configuration, answer, {
        expectedState: checks.state,
        ...(this.isOpenId ? { expectedNonce: checks.nonce, idTokenExpected: true } : {}),
        ...(checks.verifier === undefined ? {} : { pkceCodeVerifier: checks.verifier }),
      });
    } catch (error) {
      throw explain(library, error);
    }
    const idClaims: Claims = this.isOpenId ? (tokens.claims() ?? {}) : {};
    const userinfo = this.#needsUserinfo ? await this.#userinfo(tokens.access_token, idClaims['sub']) : {};
    const { sid } = idClaims;
    return {
      userinfo: { ...idClaims, ...userinfo },
      token: { ...tokens },
      sessionId: typeof sid === 'string' && sid !== '' && sid.length <= 255 ? sid : undefined,
    };
  }

  get #needsUserinfo(): boolean {
    return this.setting.user_profile_method === 'userinfo_endpoint' || !this.isOpenId;
  }

  async #userinfo(accessToken: string, subject: unknown): Promise<Claims> {
    const { library, configuration, metadata } = await this.#ready.get();
    try {
      if (this.isOpenId) return await library.fetchUserInfo(configuration, accessToken, String(subject));
      // Providers that speak OAuth2 alone have answers of their own kind.
      const { status, body } = await this.http.request({
        url: metadata.userinfo_endpoint ?? '',
        headers: { authorization: `Bearer ${accessToken}`, accept: 'application/json' },
      });
      const answer: unknown = status === 200 ? JSON.parse(body.toString('utf8')) : undefined;
      if (isJsonObject(answer)) return answer;
      throw new Error(`The userinfo endpoint answered with status ${status}`);
    } catch (cause) {
      throw new SsoError('fetch_error', 'The sign-in provider did not say who you are.', 502, { cause });
    }
  }

  async #prepare(): Promise<Ready> {
    const library = await import('openid-client');
    const metadata = await this.#metadata();
    const { setting } = this;
    const configuration = new library.Configuration(
      metadata,
      setting.client_id,
      { [library.clockTolerance]: toleranceSeconds },
      this.#authentication(library),
    );
    configuration[library.customFetch] = (url, options) => this.#fetch(url, options);
    configuration.timeout = 10;
    if (this.#mayBeInsecure) library.allowInsecureRequests(configuration);
    library.enableNonRepudiationChecks(configuration);
    return { library, configuration, metadata };
  }

  /** Some providers list the scopes of a token; the protocol wants them in one text. */
  async #fetch(url: string, options: OpenIdClient.CustomFetchOptions): Promise<Response> {
    const response = await this.http.fetch(url, options);
    if (options.method !== 'POST' || !response.headers.get('content-type')?.includes('json')) return response;
    const text = await response.text();
    const answer = parsed(text);
    const { status, headers } = response;
    if (!isJsonObject(answer) || !Array.isArray(answer['scope'])) return new Response(text, { status, headers });
    return new Response(JSON.stringify({ ...answer, scope: answer['scope'].join(' ') }), { status, headers });
  }

  async #metadata(): Promise<OpenIdClient.ServerMetadata> {
    const { setting } = this;
    const found = setting.discover ? await this.#discover() : { issuer: setting.issuer };
    const written = {
      authorization_endpoint: setting.authorization_endpoint,
      token_endpoint: setting.token_endpoint,
      userinfo_endpoint: setting.userinfo_endpoint,
      jwks_uri: setting.jwks_uri,
      id_token_signing_alg_values_supported: setting.id_token_signing_alg_values_supported as string[] | undefined,
    };
    const metadata = {
      ...found,
      ...Object.fromEntries(Object.entries(written).filter(([, value]) => value !== undefined)),
    } as OpenIdClient.ServerMetadata;
    const needed = ['authorization_endpoint', 'token_endpoint', this.isOpenId ? 'jwks_uri' : 'userinfo_endpoint'];
    if (this.#needsUserinfo && this.isOpenId) needed.push('userinfo_endpoint');
    for (const name of needed) this.#checkEndpoint(name, (metadata as unknown as Claims)[name]);
    return metadata;
  }

  #checkEndpoint(name: string, value: unknown): void {
    if (typeof value !== 'string' || !URL.canParse(value) || !/^https?:/.test(value))
      throw new Error(`The metadata name no ${name}`);
    if (!value.startsWith('https:') && !this.#mayBeInsecure)
      throw new Error(`The ${name} is not an https address; skip_verification would allow that`);
  }

  async #discover(): Promise<Claims & { readonly issuer: string }> {
    const { issuer, skip_verification: unchecked } = this.setting;
    const url = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
    const { status, body } = await this.http.request({ url, headers: { accept: 'application/json' }, maxRedirects: 3 });
    const found: unknown = status === 200 ? JSON.parse(body.toString('utf8')) : undefined;
    if (!isJsonObject(found) || typeof found['issuer'] !== 'string')
      throw new Error(`${url} answered with status ${status} and no metadata`);
    const bare = (address: string): string => address.replace(/\/$/, '');
    if (bare(found['issuer']) !== bare(issuer) && !unchecked)
      throw new Error(`The metadata are of another issuer: ${found['issuer'].slice(0, 200)}`);
    return found as Claims & { readonly issuer: string };
  }

  /** Without TLS only to this machine, or where the settings waive the checks. */
  get #mayBeInsecure(): boolean {
    const { issuer, skip_verification: unchecked } = this.setting;
    return unchecked || isLoopback(issuer);
  }

  #authentication(library: typeof OpenIdClient): OpenIdClient.ClientAuth {
    const { client_secret: fixed, client_auth_method: method } = this.setting;
    if (method === 'none') return library.None();
    const of = method === 'client_secret_post' ? library.ClientSecretPost : library.ClientSecretBasic;
    const signed = this.signedSecret;
    return signed ? (...args) => of(signed.current())(...args) : of(fixed ?? '');
  }
}

/** Our words for what the protocol's library found wrong. */
function explain(library: typeof OpenIdClient, error: unknown): SsoError {
  if (error instanceof library.ResponseBodyError) return providerError(error.error, error.error_description);
  if (error instanceof library.AuthorizationResponseError)
    return providerError(error.error, error.error_description ?? undefined);
  const chain = causesOf(error);
  if (chain.some((cause) => cause instanceof OutboundError || cause.name === 'TimeoutError'))
    return SsoError.unavailable(error);
  const about = chain.map((cause) => `${String((cause as { code?: unknown }).code)} ${cause.message}`).join('\n');
  return /JWT|JWS|JWK|KEY_SELECTION|signature|claim|nonce/i.test(about)
    ? new SsoError('invalid_token', 'What the sign-in provider sent cannot be trusted.', 400, { cause: error })
    : new SsoError('invalid_response', 'The sign-in provider sent an answer of the wrong kind.', 502, { cause: error });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function causesOf(error: unknown): Error[] {
  const chain: Error[] = [];
  for (let cause = error; cause instanceof Error && chain.length < 5; cause = cause.cause) chain.push(cause);
  return chain;
}
