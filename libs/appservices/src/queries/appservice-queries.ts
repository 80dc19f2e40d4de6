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
  /** Aliases asked for right now, so that many who look for one make one request. */
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
    let asking = this.#asking.get(alias);
    if (!asking) {
      const services = this.registry.all.filter((one) => one.fields.url !== undefined && one.coversAlias(alias));
      if (services.length === 0) return Promise.resolve(false);
      const path = `/rooms/${encodeURIComponent(alias)}`;
      asking = this.#askInTurn(path, services).finally(() => this.#asking.delete(alias));
      this.#asking.set(alias, asking);
    }
    return asking;
  }

  /**
   * Whether a service says that it has made a user. Never rejects.
   * @param signal gives the question up
   */
  userExists(service: Registration, userId: string, signal: AbortSignal): Promise<boolean> {
    const path = `/users/${encodeURIComponent(userId)}`;
    return this.#askInTurn(path, [service], signal);
  }

  async #askInTurn(path: string, services: readonly Registration[], signal?: AbortSignal): Promise<boolean> {
    for (const service of services) {
      try {
        const { status } = await this.client.send(service, {
          method: 'GET',
          path: `/v1${path}`,
          legacyPath: path,
          timeoutMs,
          signal,
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
