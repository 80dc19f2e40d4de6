import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Config, SettingsError, describeProblem, Logger } from '@rookery/platform';
import { type AppserviceSource, UserPorts } from '@rookery/users';
import { readRegistrations } from './read-registrations.js';
import type { Registration } from './registration.js';

/** Told of signs of life. Must not throw or take time. */
export interface ServiceWatcher {
  /** A service could be reached. */
  reached(asId: string): void;
  /** A service makes a request. */
  seen(asId: string): void;
}

/** The application services of this server, from their files. They change with a restart. */
@Injectable()
export class AppserviceRegistry implements AppserviceSource, OnModuleInit {
  #loaded: readonly Registration[] | undefined;
  #byToken: ReadonlyMap<string, Registration> = new Map();
  #byId: ReadonlyMap<string, Registration> = new Map();
  #watcher: ServiceWatcher | undefined;

  constructor(
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly ports: UserPorts,
  ) {}

  /** @throws SettingsError when something is wrong with a file */
  onModuleInit(): void {
    if (this.all.length > 0) this.ports.appservices.give(this);
  }

  /** In the order of the settings. @throws SettingsError when something is wrong with a file */
  get all(): readonly Registration[] {
    this.#loaded ??= this.#load();
    return this.#loaded;
  }

  byId(id: string): Registration | undefined {
    return this.#byId.get(id);
  }

  byToken(token: string, ip: string): Registration | undefined {
    const found = this.#byToken.get(token);
    if (!found?.accepts(ip)) return undefined;
    this.#watcher?.seen(found.id);
    return found;
  }

  exclusiveOwner(userId: string): Registration | undefined {
    return this.all.find((one) => one.owns(userId));
  }

  /** Whether an alias is another's: a service may use those of its own namespaces alone. */
  isReserved(alias: string, appserviceId: string | undefined): boolean {
    const own = appserviceId === undefined ? undefined : this.#byId.get(appserviceId);
    if (own && !own.coversAlias(alias)) return true;
    return this.all.some((one) => one !== own && one.ownsAlias(alias));
  }

  /** Whoever waits for services to come back says how it wants to be told. */
  watch(watcher: ServiceWatcher): void {
    this.#watcher = watcher;
  }

  /** A service could be reached. */
  reached(asId: string): void {
    this.#watcher?.reached(asId);
  }

  #load(): readonly Registration[] {
    const files = this.config.get('app_service_config_files');
    const { registrations, problems } = readRegistrations(files, this.config.serverName);
    if (problems.some(({ level }) => level === 'error')) throw new SettingsError(problems);
    for (const problem of problems) this.logger.warn('Application service', { problem: describeProblem(problem) });
    this.#byToken = new Map(registrations.map((one) => [one.fields.asToken, one]));
    this.#byId = new Map(registrations.map((one) => [one.id, one]));
    return registrations;
  }
}
