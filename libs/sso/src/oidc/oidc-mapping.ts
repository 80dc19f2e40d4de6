import { ConfigError, type OidcMappingProvider } from '@rookery/module-api';
import { type ModuleDispatcher, type ProviderFactory, providerParts } from '@rookery/module-host';
import type { Clock, OidcProviderSetting } from '@rookery/platform';
import { checkRemoteId, askMapping } from '../providers/mapping-call.js';
import type { NewUser } from '../providers/identity-provider.js';
import type { Claims, OidcIdentity } from './oidc-claims.js';
import { templateMapping } from './template-mapping.js';

/** What the built-in mapping is called in settings that name it. */
const builtIn = /(^|\.)JinjaOidcMappingProvider$/;

/** From claims to accounts: the built-in templates, or the module that the settings name. Modules may be exchanged. */
export class OidcMapping {
  readonly #module: string | undefined;
  #made: { readonly factory: ProviderFactory<'oidcMapping'>; readonly mapping: OidcMappingProvider } | undefined;
  readonly #own: OidcMappingProvider | undefined;

  /** @throws ConfigError when the templates are wrong */
  constructor(
    private readonly setting: OidcProviderSetting['user_mapping_provider'],
    private readonly modules: ModuleDispatcher,
    private readonly clock: Clock,
  ) {
    const name = setting?.module;
    this.#module = name === undefined || builtIn.test(name) ? undefined : name;
    this.#own = this.#module === undefined ? templateMapping(setting?.config) : undefined;
  }

  /** @throws ConfigError when no module provides the mapping, or it refuses its settings */
  async check(): Promise<void> {
    const mapping = this.#current();
    try {
      await providerParts(mapping);
    } catch (error) {
      throw inConfig(error);
    }
  }

  /** By what the provider knows the person. @throws SsoError */
  async remoteId(userinfo: Claims): Promise<string> {
    return checkRemoteId(await askMapping(this.clock, () => this.#current().getRemoteUserId(userinfo)));
  }

  /** What an account is made of. @throws SsoError, RedirectError */
  attributes({ userinfo, token }: OidcIdentity, failures: number): Promise<NewUser> {
    return askMapping(this.clock, async () => {
      const found = await this.#current().mapUserAttributes(userinfo, token, failures);
      return { ...found, emails: found.emails?.filter((email) => typeof email === 'string') };
    });
  }

  /** More fields for the answer to the login. @throws SsoError */
  extraFields({ userinfo, token }: OidcIdentity): Promise<Claims> {
    return askMapping(this.clock, async () => (await this.#current().getExtraAttributes?.(userinfo, token)) ?? {});
  }

  #current(): OidcMappingProvider {
    if (this.#own) return this.#own;
    const name = this.#module ?? '';
    const factory = this.modules.provider('oidcMapping', name);
    if (!factory) {
      throw new ConfigError(`no module registers an OpenID Connect mapping called ${name}`, ['module']);
    }
    if (this.#made?.factory !== factory) {
      try {
        this.#made = { factory, mapping: factory.create(this.setting?.config) };
      } catch (error) {
        throw inConfig(error);
      }
    }
    return this.#made.mapping;
  }
}

/** What a module says of its own settings, as it is said of the setting that holds them. */
const inConfig = (error: unknown): unknown =>
  ConfigError.is(error) ? new ConfigError(error.message, ['config', ...error.path]) : error;
