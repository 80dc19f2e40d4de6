import type { JsonObject } from '@rookery/matrix-types';
import type { Ids, OidcProviderSetting } from '@rookery/platform';
import { checkRequirements } from '../common/attribute-requirements.js';
import type { CookieOptions, SealedCookies } from '../common/sealed-cookies.js';
import type { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import type { SignOnRedirect, IdentityProvider, SignOn, SsoPurpose } from '../providers/identity-provider.js';
import type { OidcChecks, OidcClient } from './oidc-client.js';
import type { OidcMapping } from './oidc-mapping.js';
import type { BrowserRequest } from '../common/browser-request.js';

/** How long somebody may be away at the provider. */
export const oidcSessionMs = 3_600_000;

const cookiePath = '_synapse/client/oidc';
/** Two, since some browsers forget cookies with an attribute that they do not know. */
export const oidcCookies: readonly (readonly [name: string, options: Omit<CookieOptions, 'lifetimeMs'>])[] = [
  ['oidc_session', { path: cookiePath, site: 'cross-site' }],
  ['oidc_session_no_samesite', { path: cookiePath, site: 'legacy' }],
];
/** What the cookies are sealed as: both hold the same. */
export const oidcSeal = 'oidc_session';

/** A sign-on under way, in the browser's keeping. */
export interface OidcSession extends OidcChecks {
  readonly idp: string;
  readonly purpose: SsoPurpose;
}

/** One entry of `oidc_providers`. */
export class OidcProvider implements IdentityProvider {
  readonly id: string;
  readonly name: string;
  readonly icon: string | undefined;
  readonly brand: string | undefined;
  readonly registers: boolean;

  constructor(
    readonly setting: OidcProviderSetting,
    readonly client: OidcClient,
    readonly mapping: OidcMapping,
    private readonly cookies: SealedCookies,
    private readonly addresses: SsoAddresses,
    private readonly ids: Ids,
  ) {
    // The name that entries of the old form have keeps its accounts.
    this.id = setting.idp_id === 'oidc' ? 'oidc' : `oidc-${setting.idp_id}`;
    this.name = setting.idp_name;
    this.icon = setting.idp_icon;
    this.brand = setting.idp_brand;
    this.registers = setting.enable_registration;
  }

  async begin(purpose: SsoPurpose, request: BrowserRequest): Promise<SignOnRedirect> {
    const random = (): string => this.ids.bytes(32).toString('base64url');
    const session: OidcSession = {
      idp: this.id,
      purpose,
      state: random(),
      nonce: random(),
      ...((await this.client.usesPkce()) ? { verifier: random() } : {}),
    };
    const location = await this.client.authorizationUrl(this.#redirectUri, session, this.#passedOn(request));
    const sealed = this.cookies.seal(oidcSeal, session as unknown as JsonObject, oidcSessionMs);
    if (sealed === undefined) throw new SsoError('bad_param', 'The address of the app is too long.');
    return {
      location,
      cookies: oidcCookies.map(([name, options]) =>
        this.cookies.header(name, sealed, { ...options, lifetimeMs: oidcSessionMs }),
      ),
    };
  }

  /**
   * What the provider's answer says of the person.
   * @param answer parameters of the callback
   * @throws SsoError
   */
  async signOn(
    answer: URLSearchParams,
    session: OidcSession,
    request: BrowserRequest,
    cookies: readonly string[],
  ): Promise<SignOn> {
    const callback = new URL(this.#redirectUri);
    callback.search = answer.toString();
    const identity = await this.client.identify(callback, session);
    checkRequirements(this.setting.attribute_requirements, identity.userinfo);
    const { mapping } = this;
    return {
      provider: this,
      remoteId: await mapping.remoteId(identity.userinfo),
      sessionId: identity.sessionId,
      purpose: session.purpose,
      request,
      cookies,
      attributes: (failures) => mapping.attributes(identity, failures),
      existingLocalpart: async () =>
        this.setting.allow_existing_users ? (await mapping.attributes(identity, 0)).localpart : undefined,
      extraFields: () => mapping.extraFields(identity),
    };
  }

  get #redirectUri(): string {
    return this.setting.redirect_uri ?? this.addresses.urlOf('_synapse/client/oidc/callback');
  }

  #passedOn(request: BrowserRequest): Record<string, string> {
    const passed: Record<string, string> = {};
    for (const name of this.setting.passthrough_authorization_parameters) {
      const value = request.query[name];
      if (typeof value === 'string' && value.length <= 1_024) passed[name] = value;
    }
    return passed;
  }
}
