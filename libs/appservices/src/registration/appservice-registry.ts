import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Config, ConfigError, describeProblem, Logger } from '@rookery/platform';
import { AppserviceDirectory, type AppserviceSource } from '@rookery/users';
import { readRegistrations } from './read-registrations.js';
import type { Registration } from './registration.js';

/** The application services of this server, from their files. They change with a restart. */
@Injectable()
export class AppserviceRegistry implements AppserviceSource, OnModuleInit {
  #all: readonly Registration[] = [];
  #byToken: ReadonlyMap<string, Registration> = new Map();
  #byId: ReadonlyMap<string, Registration> = new Map();

  constructor(
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly directory: AppserviceDirectory,
  ) {}

  /** Reads the files. @throws ConfigError when something is wrong with one */
  onModuleInit(): void {
    const { registrations, problems } = readRegistrations(
      this.config.get('app_service_config_files'),
      this.config.serverName,
    );
    if (problems.some(({ level }) => level === 'error')) throw new ConfigError(problems);
    for (const problem of problems) this.logger.warn('Application service', { problem: describeProblem(problem) });
    this.#all = registrations;
    this.#byToken = new Map(registrations.map((one) => [one.fields.asToken, one]));
    this.#byId = new Map(registrations.map((one) => [one.id, one]));
    if (registrations.length === 0) return;
    this.directory.use(this);
  }

  /** In the order of the settings. */
  get all(): readonly Registration[] {
    return this.#all;
  }

  byId(id: string): Registration | undefined {
    return this.#byId.get(id);
  }

  byToken(token: string, ip: string): Registration | undefined {
    const found = this.#byToken.get(token);
    return found?.accepts(ip) ? found : undefined;
  }

  exclusiveOwner(userId: string): Registration | undefined {
    return this.#all.find((one) => one.owns(userId));
  }

  /** Whether an alias is another's: a service may use those of its own namespaces alone. */
  isReserved(alias: string, appserviceId: string | undefined): boolean {
    const own = appserviceId === undefined ? undefined : this.#byId.get(appserviceId);
    if (own && !own.coversAlias(alias)) return true;
    return this.#all.some((one) => one !== own && one.ownsAlias(alias));
  }
}
