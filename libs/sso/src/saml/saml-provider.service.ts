import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import {
  ConfigError,
  mapUsernameToMxidLocalpart,
  type SamlMappingProvider,
  type SamlResponse,
} from '@rookery/module-api';
import { ModuleDispatcher, type ProviderFactory, providerParts } from '@rookery/module-host';
import { Clock, Config, Ids, Lifecycle, settingError } from '@rookery/platform';
import { checkRequirements } from '../common/attribute-requirements.js';
import { type CookieOptions, SealedCookies } from '../common/sealed-cookies.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import type { SignOnRedirect, IdentityProvider, NewUser, SignOn, SsoPurpose } from '../providers/identity-provider.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { askMapping, checkRemoteId } from '../providers/mapping-call.js';
import { ProviderHttp } from '../providers/provider-http.js';
import { attributeMapping } from './attribute-mapping.js';
import type { SamlIdp } from './idp-metadata.js';
import { SamlClient } from './saml-client.js';
import { readSamlSettings, type SamlSettings } from './saml-settings.js';
import type { BrowserRequest } from '../common/browser-request.js';

const cookiePath = '_synapse/client/saml2';
/** The answer is a form of another site. */
export const samlCookies: readonly (readonly [name: string, options: Omit<CookieOptions, 'lifetimeMs'>])[] = [
  ['saml_session', { path: cookiePath, site: 'cross-site' }],
  ['saml_session_no_samesite', { path: cookiePath, site: 'legacy' }],
];
export const samlSeal = 'saml_session';

/** What the built-in mapping is called in settings that name it. */
const builtIn = /(^|\.)DefaultSamlMappingProvider$/;

/** A sign-on under way, in the browser's keeping. */
export interface SamlSession {
  readonly requestId: string;
  readonly purpose: SsoPurpose;
}

/** The identity provider of `saml2_config`. */
@Injectable()
export class SamlProvider implements IdentityProvider, OnModuleInit {
  readonly id = 'saml';
  readonly registers = true;
  #client: SamlClient | undefined;
  #settings: SamlSettings | undefined;
  #own: SamlMappingProvider | undefined;
  #made: { readonly factory: ProviderFactory<'samlMapping'>; readonly mapping: SamlMappingProvider } | undefined;

  // Nine parameters: a provider of the settings makes its client, its mapping and its cookies itself.
  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly http: ProviderHttp,
    private readonly cookies: SealedCookies,
    private readonly addresses: SsoAddresses,
    private readonly modules: ModuleDispatcher,
    private readonly providers: IdentityProviders,
    private readonly lifecycle: Lifecycle,
  ) {}

  /** @throws ConfigError with file and line */
  async onModuleInit(): Promise<void> {
    const path = this.config.get('saml2_config.sp_config') ?? this.config.get('saml2_config.config_path');
    if (!this.config.get('saml2_config.enabled') || path === undefined) return;
    this.#settings = await readSamlSettings(this.config);
    this.#client = new SamlClient(
      this.#settings,
      {
        metadata: this.addresses.urlOf('_synapse/client/saml2/metadata.xml'),
        consumer: this.addresses.urlOf('_synapse/client/saml2/authn_response'),
      },
      await this.#known(this.#settings),
      this.config.get('saml2_config.idp_entityid'),
      this.http,
      this.clock,
      this.sessionMs,
    );
    const { module: name, config } = this.config.get('saml2_config.user_mapping_provider') ?? {};
    if (name === undefined || builtIn.test(name)) this.#own = await this.#located(() => attributeMapping(config));
    this.providers.add(this);
    this.lifecycle.on('streams', {
      name: 'SAML mapping',
      everyProcess: true,
      start: async () => void (await this.#located(() => providerParts(this.#mapping()))),
    });
  }

  get name(): string {
    return this.config.get('saml2_config.idp_name');
  }
  get icon(): string | undefined {
    return this.config.get('saml2_config.idp_icon');
  }
  get brand(): string | undefined {
    return this.config.get('saml2_config.idp_brand');
  }
  /** How long a sign-on may take. */
  get sessionMs(): number {
    return this.config.get('saml2_config.saml_session_lifetime');
  }
  /** Whether people may come whom this server did not send. */
  get allowsUnsolicited(): boolean {
    return this.#settings?.allowsUnsolicited ?? false;
  }
  /** The protocol's side; `undefined` when SAML is off. */
  get client(): SamlClient | undefined {
    return this.#client;
  }

  async begin(purpose: SsoPurpose): Promise<SignOnRedirect> {
    const session: SamlSession = { purpose, requestId: `_${this.ids.bytes(20).toString('hex')}` };
    const sealed = this.cookies.seal(samlSeal, session as unknown as JsonObject, this.sessionMs);
    if (sealed === undefined) throw new SsoError('bad_param', 'The address of the app is too long.');
    if (!this.#client) throw new Error('SAML is off');
    return {
      location: await this.#client.authorizationUrl(session.requestId),
      cookies: samlCookies.map(([name, options]) =>
        this.cookies.header(name, sealed, { ...options, lifetimeMs: this.sessionMs }),
      ),
    };
  }

  /** Whom a checked response is about. @throws SsoError, RedirectError */
  async signOn(response: SamlResponse, purpose: SsoPurpose, request: BrowserRequest): Promise<SignOn> {
    checkRequirements(this.config.get('saml2_config.attribute_requirements'), response.attributes);
    const redirectUrl = purpose.kind === 'login' ? purpose.redirectUrl : '';
    const ask = <T>(question: (mapping: SamlMappingProvider) => Promise<T> | T): Promise<T> =>
      askMapping(this.clock, () => question(this.#mapping()));
    const { required } = await ask((mapping) => mapping.getSamlAttributes());
    const missing = required.filter((name) => response.attributes[name] === undefined);
    if (missing.length > 0)
      throw SsoError.mapping(`The sign-in provider did not send the attribute ${missing.join(', ')}.`);
    const remoteId = checkRemoteId(await ask((mapping) => mapping.getRemoteUserId(response, redirectUrl)));
    const attributes = async (failures: number): Promise<NewUser> => {
      const found = await ask((mapping) => mapping.samlResponseToUserAttributes(response, failures, redirectUrl));
      return {
        localpart: found.mxidLocalpart,
        displayName: found.displayName,
        emails: found.emails?.filter((email) => typeof email === 'string'),
      };
    };
    return {
      provider: this,
      remoteId,
      purpose,
      request,
      cookies: [],
      attributes,
      existingLocalpart: () => {
        const source = this.config.get('saml2_config.grandfathered_mxid_source_attribute');
        const [name] = source === undefined || source === '' ? [] : (response.attributes[source] ?? []);
        return name === undefined ? undefined : mapUsernameToMxidLocalpart(name);
      },
    };
  }

  /** What the metadata at hand describe; those at an address are fetched at the first sign-on. */
  async #known(settings: SamlSettings): Promise<SamlIdp[]> {
    const wrong = (message: string): never => {
      const name = this.config.get('saml2_config.sp_config') === undefined ? 'config_path' : 'sp_config';
      throw settingError(this.config, `saml2_config.${name}`, [], message);
    };
    if (settings.metadata.length + settings.metadataUrls.length === 0)
      return wrong('needs metadata of an identity provider: metadata.local, metadata.inline or metadata.remote');
    if (settings.signsRequests && settings.key === undefined)
      return wrong('authn_requests_signed needs key_file and cert_file');
    const { readIdpMetadata } = await import('./idp-metadata.js');
    const idps = settings.metadata.flatMap((xml) => {
      try {
        return readIdpMetadata(xml);
      } catch (error) {
        return wrong((error as Error).message);
      }
    });
    const wanted = this.config.get('saml2_config.idp_entityid');
    if (settings.metadataUrls.length > 0) return idps;
    if (wanted !== undefined && !idps.some(({ entityId }) => entityId === wanted))
      return wrong(`the metadata do not describe ${wanted} (idp_entityid)`);
    if (wanted === undefined && idps.length > 1)
      return wrong(`the metadata describe ${idps.length} identity providers: say which one in idp_entityid`);
    return idps;
  }

  /** @throws ConfigError when no module provides the mapping, or it refuses its settings */
  #mapping(): SamlMappingProvider {
    if (this.#own) return this.#own;
    const { module: name = '', config } = this.config.get('saml2_config.user_mapping_provider') ?? {};
    const factory = this.modules.provider('samlMapping', name);
    if (!factory) throw new ConfigError(`no module registers a SAML mapping called ${name}`, ['module']);
    if (this.#made?.factory !== factory) this.#made = { factory, mapping: factory.create(config) };
    return this.#made.mapping;
  }

  async #located<T>(step: () => T | Promise<T>): Promise<T> {
    try {
      return await step();
    } catch (error) {
      if (!ConfigError.is(error)) throw error;
      const path = error.path[0] === 'module' ? error.path : ['config', ...error.path];
      throw settingError(this.config, 'saml2_config.user_mapping_provider', path, error.message);
    }
  }
}
