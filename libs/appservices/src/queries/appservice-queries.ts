import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Cache, Clock, Config, Logger, SingleFlight } from '@rookery/platform';
import { RoomPorts } from '@rookery/rooms';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { AppserviceClient } from './appservice-client.js';

const timeoutMs = 15_000;
/** How long a service is believed that it has no such user, milliseconds. */
const unknownMs = 60_000;

/** Whether a service has made what it was asked about, does not know it, or did not say. */
type Answer = 'made' | 'unknown' | 'unanswered';

/**
 * Asks application services whether users and aliases of their namespaces exist; they make them then.
 * @spec application-service-api#querying
 */
@Injectable()
export class AppserviceQueries implements OnModuleInit {
  /** Aliases asked for right now, so that many who look for one make one request. */
  readonly #asking = new SingleFlight<Answer>();
  /** Users that need not be asked about, with until when, by a clock that only goes on; milliseconds. */
  readonly #settled: Cache<string, number>;

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly client: AppserviceClient,
    private readonly ports: RoomPorts,
    private readonly logger: Logger,
    private readonly clock: Clock,
    config: Config,
  ) {
    this.#settled = new Cache(config, 'appservice_users_asked', { invalidation: 'expires', max: 40_000 });
  }

  onModuleInit(): void {
    this.ports.aliasClaims.give({
      isReserved: (alias, appserviceId) => this.registry.isReserved(alias, appserviceId),
      ask: (alias) => this.aliasExists(alias),
    });
  }

  /** Whether a service says that it has made an alias. Never rejects. */
  async aliasExists(alias: string): Promise<boolean> {
    const services = this.registry.all.filter((one) => one.fields.url !== undefined && one.coversAlias(alias));
    if (services.length === 0) return false;
    const ask = (): Promise<Answer> => this.#askInTurn(`/rooms/${encodeURIComponent(alias)}`, services);
    return (await this.#asking.run(alias, ask)) === 'made';
  }

  /** Whether a service is to be asked about a user, if they do not exist: it has not said yet, or not lately that it knows of none. */
  isUnasked(service: Registration, userId: string): boolean {
    const untilMs = this.#settled.get(askedKey(service, userId));
    return untilMs === undefined || untilMs <= this.clock.monotonicMs();
  }

  /** Notes that a user exists, and need not be asked about any more. */
  noteExisting(service: Registration, userId: string): void {
    this.#settled.set(askedKey(service, userId), Infinity);
  }

  /**
   * Asks a service about a user, so that it can make them. Never rejects.
   * @param signal gives the question up
   */
  async askAboutUser(service: Registration, userId: string, signal: AbortSignal): Promise<void> {
    const answer = await this.#askInTurn(`/users/${encodeURIComponent(userId)}`, [service], signal);
    if (answer === 'made') this.noteExisting(service, userId);
    if (answer === 'unknown') this.#settled.set(askedKey(service, userId), this.clock.monotonicMs() + unknownMs);
  }

  async #askInTurn(path: string, services: readonly Registration[], signal?: AbortSignal): Promise<Answer> {
    let answer: Answer = 'unknown';
    for (const service of services) {
      try {
        const { status } = await this.client.send(service, {
          method: 'GET',
          path: `/v1${path}`,
          legacyPath: path,
          timeoutMs,
          signal,
        });
        if (status >= 200 && status < 300) return 'made';
        if (status === 404) continue;
        this.logger.warn('An application service did not answer a question', { service: service.id, path, status });
      } catch (error) {
        this.logger.warn('An application service did not answer a question', { service: service.id, path, err: error });
      }
      answer = 'unanswered';
    }
    return answer;
  }
}

const askedKey = (service: Registration, userId: string): string => `${service.id}\n${userId}`;
