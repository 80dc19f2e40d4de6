import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Logger } from '@rookery/platform';
import { AliasClaims } from '@rookery/rooms';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { AppserviceClient } from './appservice-client.js';

const timeoutMs = 15_000;

/**
 * Asks application services whether users and aliases of their namespaces exist; they make them then.
 * @spec application-service-api#querying
 */
@Injectable()
export class AppserviceQueries implements OnModuleInit {
  /** Questions under way, so that many who ask the same make one request. */
  readonly #asking = new Map<string, Promise<boolean>>();

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly client: AppserviceClient,
    private readonly claims: AliasClaims,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.claims.use({
      isReserved: (alias, appserviceId) => this.registry.isReserved(alias, appserviceId),
      ask: (alias) => this.aliasExists(alias),
    });
  }

  /** Whether a service says that it has made an alias. Never rejects. */
  aliasExists(alias: string): Promise<boolean> {
    return this.#anyOf(`/rooms/${encodeURIComponent(alias)}`, () =>
      this.registry.all.filter((one) => one.coversAlias(alias)),
    );
  }

  /** Whether a service says that it has made a user. Never rejects. */
  userExists(service: Registration, userId: string): Promise<boolean> {
    return this.#anyOf(`/users/${encodeURIComponent(userId)}`, () => [service]);
  }

  #anyOf(path: string, services: () => readonly Registration[]): Promise<boolean> {
    let asking = this.#asking.get(path);
    if (!asking) {
      const candidates = services().filter((one) => one.fields.url !== undefined);
      if (candidates.length === 0) return Promise.resolve(false);
      asking = this.#askInTurn(path, candidates).finally(() => this.#asking.delete(path));
      this.#asking.set(path, asking);
    }
    return asking;
  }

  async #askInTurn(path: string, services: readonly Registration[]): Promise<boolean> {
    for (const service of services) {
      try {
        const { status } = await this.client.send(service, {
          method: 'GET',
          path: `/v1${path}`,
          legacyPath: path,
          timeoutMs,
        });
        if (status >= 200 && status < 300) return true;
        if (status !== 404)
          this.logger.warn('An application service did not answer a question', { service: service.id, path, status });
      } catch (error) {
        this.logger.warn('An application service did not answer a question', { service: service.id, path, err: error });
      }
    }
    return false;
  }
}
