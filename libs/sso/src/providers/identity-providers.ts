import { Injectable, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { ExternalIds, type LoginFlow, LoginService, UiaService, UserPorts } from '@rookery/users';
import type { IdentityProvider } from './identity-provider.js';

/** The providers that the settings name, in their order, then those of modules; and what clients are told of them. */
@Injectable()
export class IdentityProviders implements OnModuleInit {
  readonly #providers = new Map<string, IdentityProvider>();
  readonly #sources: (() => readonly IdentityProvider[])[] = [];

  constructor(
    private readonly externalIds: ExternalIds,
    private readonly logins: LoginService,
    private readonly uia: UiaService,
    private readonly ports: UserPorts,
  ) {}

  onModuleInit(): void {
    this.logins.addFlow(() => (this.#providers.has('cas') ? { type: 'm.login.cas' } : undefined));
    this.logins.addFlow(() => this.#flow());
    this.ports.singleSignOn.give(async (userId) => (await this.ofUser(userId)).length > 0);
    this.uia.addStage({
      type: 'm.login.sso',
      check: () => Promise.reject(MatrixError.unauthorized('Single sign-on has not confirmed this session yet')),
    });
  }

  /** Adds one; ids are unique. */
  add(provider: IdentityProvider): void {
    if (this.#providers.has(provider.id)) throw new Error(`Two providers are called ${provider.id}`);
    this.#providers.set(provider.id, provider);
  }

  /** Adds providers that come and go while the server runs. */
  addSource(source: () => readonly IdentityProvider[]): void {
    this.#sources.push(source);
  }

  get all(): readonly IdentityProvider[] {
    return [...this.#providers.values(), ...this.#sources.flatMap((source) => source())];
  }

  find(id: string): IdentityProvider | undefined {
    return this.#providers.get(id) ?? this.all.find((provider) => provider.id === id);
  }

  /** The providers that know a user. */
  async ofUser(userId: string): Promise<IdentityProvider[]> {
    if (this.all.length === 0) return [];
    const known = new Set((await this.externalIds.of(userId)).map((one) => one.auth_provider));
    return this.all.filter(({ id }) => known.has(id));
  }

  #flow(): LoginFlow | undefined {
    const { all } = this;
    if (all.length === 0) return undefined;
    return {
      type: 'm.login.sso',
      identity_providers: all.map(({ id, name, icon, brand }) => ({
        id,
        name,
        ...(icon === undefined ? {} : { icon }),
        ...(brand === undefined ? {} : { brand }),
      })),
    };
  }
}
