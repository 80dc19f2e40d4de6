import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type ModuleIdentityProvider, ModuleDispatcher } from '@rookery/module-host';
import { Clock, Ids } from '@rookery/platform';
import { SealedCookies } from '../common/sealed-cookies.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { ModuleProvider } from './module-provider.js';

/** The sign-in providers that modules registered; others after a reload. */
@Injectable()
export class ModuleProviders implements OnModuleInit {
  #registered: ReadonlyMap<string, ModuleIdentityProvider> | undefined;
  #all: readonly ModuleProvider[] = [];

  constructor(
    private readonly modules: ModuleDispatcher,
    private readonly providers: IdentityProviders,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly cookies: SealedCookies,
    private readonly addresses: SsoAddresses,
  ) {}

  onModuleInit(): void {
    this.providers.addSource(() => this.all);
  }

  get all(): readonly ModuleProvider[] {
    const registered = this.modules.identityProviders;
    if (this.#registered !== registered) {
      const { clock, ids, cookies, addresses } = this;
      this.#registered = registered;
      this.#all = [...registered.values()].map((one) => new ModuleProvider(one, { clock, ids, cookies, addresses }));
    }
    return this.#all;
  }

  /** The provider of an id. */
  find(id: string): ModuleProvider | undefined {
    return this.all.find((provider) => provider.id === id);
  }
}
