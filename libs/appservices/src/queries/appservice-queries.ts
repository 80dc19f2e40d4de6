import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Cache, Config, Logger, SingleFlight } from '@rookery/platform';
import { RoomPorts } from '@rookery/rooms';
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
  readonly #asking = new SingleFlight<boolean>();
  /** Users that exist, or that a service was asked about before it was told of them. */
  readonly #asked: Cache<string, true>;

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly client: AppserviceClient,
    private readonly ports: RoomPorts,
    private readonly logger: Logger,
    config: Config,
  ) {
    this.#asked = new Cache(config, 'appservice_users_asked', { invalidation: 'never', max: 40_000 });
  }

  onModuleInit(): void {
    this.ports.aliasClaims.give({
      isReserved: (alias, appserviceId) => this.registry.isReserved(alias, appserviceId),
      ask: (alias) => this.aliasExists(alias),
    });
  }

  /** Whether a service says that it has made an alias. Never rejects. */
  aliasExists(alias: string): Promise<boolean> {
    const services = this.registry.all.filter((one) => one.fields.url !== undefined && one.coversAlias(alias));
    if (services.length === 0) return Promise.resolve(false);
    return this.#asking.run(alias, () => this.#askInTurn(`/rooms/${encodeURIComponent(alias)}`, services));
  }

  /** Whether a service has not been asked about a user yet. */
  isUnasked(service: Registration, userId: string): boolean {
    return this.#asked.get(askedKey(service, userId)) === undefined;
  }

  /** Notes that a user need not be asked about: that was done, or they exist. */
  noteAsked(service: Registration, userId: string): void {
    this.#asked.set(askedKey(service, userId), true);
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

const askedKey = (service: Registration, userId: string): string => `${service.id}\n${userId}`;
