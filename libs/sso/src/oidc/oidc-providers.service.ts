import { Injectable, type OnModuleInit } from '@nestjs/common';
import { ConfigError } from '@rookery/module-api';
import { ModuleDispatcher } from '@rookery/module-host';
import { Clock, Config, Ids, Lifecycle, type OidcProviderSetting, settingError } from '@rookery/platform';
import { SealedCookies } from '../common/sealed-cookies.js';
import { isLoopback } from '../common/client-addresses.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { ProviderHttp } from '../providers/provider-http.js';
import { SignedClientSecret } from './client-secret.js';
import { OidcClient } from './oidc-client.js';
import { OidcMapping } from './oidc-mapping.js';
import { OidcProvider } from './oidc-provider.js';

/** The providers of `oidc_providers`. */
@Injectable()
export class OidcProviders implements OnModuleInit {
  readonly all: OidcProvider[] = [];

  // Nine parameters: six of them are for the providers that it makes of the settings.
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

  /** @throws SettingsError with file and line */
  onModuleInit(): void {
    this.config.get('oidc_providers').forEach((setting, index) => {
      const provider = this.#build(setting, index);
      this.all.push(provider);
      this.providers.add(provider);
    });
    if (this.all.length === 0) return;
    // Modules have registered their mappings by then.
    this.lifecycle.on('streams', {
      name: 'single sign-on mappings',
      everyProcess: true,
      start: () => this.#check(),
    });
  }

  async #check(): Promise<void> {
    for (const [index, { mapping }] of this.all.entries()) {
      try {
        await mapping.check();
      } catch (error) {
        throw this.#located(index, error);
      }
    }
  }

  /** The provider of an id. */
  find(id: string): OidcProvider | undefined {
    return this.all.find((provider) => provider.id === id);
  }

  #build(setting: OidcProviderSetting, index: number): OidcProvider {
    if (!URL.canParse(setting.issuer) || !/^https?:/.test(setting.issuer)) {
      throw settingError(this.config, 'oidc_providers', [index, 'issuer'], 'expected an http(s) address');
    }
    if (!setting.issuer.startsWith('https:') && !setting.skip_verification && !isLoopback(setting.issuer)) {
      const message = 'expected an https address; without TLS it needs skip_verification: true';
      throw settingError(this.config, 'oidc_providers', [index, 'issuer'], message);
    }
    const mapping = this.#mapping(setting, index);
    const client = new OidcClient(setting, this.http, this.clock, this.#signedSecret(setting, index));
    return new OidcProvider(setting, client, mapping, this.cookies, this.addresses, this.ids);
  }

  #signedSecret(setting: OidcProviderSetting, index: number): SignedClientSecret | undefined {
    if (!setting.client_secret_jwt_key) return undefined;
    try {
      return new SignedClientSecret(setting.client_secret_jwt_key, this.clock);
    } catch (error) {
      const message = `the key cannot be used: ${(error as Error).message}`;
      throw settingError(this.config, 'oidc_providers', [index, 'client_secret_jwt_key'], message);
    }
  }

  #mapping(setting: OidcProviderSetting, index: number): OidcMapping {
    try {
      return new OidcMapping(setting.user_mapping_provider, this.modules, this.clock);
    } catch (error) {
      throw this.#located(index, error);
    }
  }

  /** Adds the place in the settings to what is wrong with a mapping. */
  #located(index: number, error: unknown): unknown {
    if (!ConfigError.is(error)) return error;
    const path = error.path[0] === 'module' || error.path[0] === 'config' ? error.path : ['config', ...error.path];
    return settingError(this.config, 'oidc_providers', [index, 'user_mapping_provider', ...path], error.message);
  }
}
