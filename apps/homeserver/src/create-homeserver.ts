import type { Type } from '@nestjs/common';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BackgroundUpdate, checkDatabaseOptions, Database, DataStores, failureLevel } from '@rookery/database';
import { type NameResolver, SystemNameResolver } from '@rookery/federation-client';
import {
  type BoundAddress,
  checkTls,
  type ForwardingOptions,
  type ProcessAddress,
  HttpApp,
  httpSettingsOf,
} from '@rookery/http';
import { guardProcess, type ModuleEntry, moduleEntriesOf, ModuleHost } from '@rookery/module-host';
import { ModuleServices } from '@rookery/module-services';
import {
  assemble,
  beginCaches,
  BackgroundTasks,
  Clock,
  type Config,
  SettingsError,
  describeProblem,
  ErrorReports,
  Ids,
  Lifecycle,
  Logger,
  loggerOptions,
  Metrics,
  PinoLogger,
  ReportingLogger,
  SilentLogger,
  SystemClock,
  SystemIds,
  Tracer,
} from '@rookery/platform';
import { Invalidations, Notifier, Streams, WorkSharing } from '@rookery/replication';
import { Pages } from '@rookery/templates';
import { hasAccounts } from '@rookery/users';
import { ServedDatabase } from './core/served-database.js';
import { openLog } from './open-log.js';
import { checkParts, StartupError } from './startup-error.js';
import { isBesideWriter, type ProcessPlace } from './process-place.js';
import { manholeOf } from './manhole.js';
import { databaseProblem, isDatabaseThere } from './database-health.js';
import { databaseOptions, stateDatabaseOptions } from './database-options.js';
import { mediaFolderProblems } from './place-problems.js';
import { RootModule } from './root.module.js';
import { backgroundUpdates } from './schema.js';
import { version } from './version.js';
import { urlOf } from './welcome.js';

/** What may be given in place of the real thing. */
export interface HomeserverOverrides {
  readonly clock?: Clock;
  readonly ids?: Ids;
  readonly logger?: Logger;
  /** How names of other servers become addresses. */
  readonly nameResolver?: NameResolver;
  /** More modules, behind those of the settings. */
  readonly modules?: readonly ModuleEntry[];
  /** Where it is among other processes; the whole server unless told. */
  readonly place?: ProcessPlace;
  /** More background updates, beside those of the libs. */
  readonly backgroundUpdates?: readonly BackgroundUpdate[];
}

/** What a reload did, for whoever asked for it. */
export interface ReloadReport {
  /** Settings that changed and hold now. */
  readonly changed: readonly string[];
  /** Names of modules by what became of them. */
  readonly modules: {
    readonly added: readonly string[];
    readonly changed: readonly string[];
    readonly removed: readonly string[];
  };
  /** What changed and holds after a restart only, or could not be taken over; a line each. */
  readonly left: readonly string[];
}

/** How long a stop may take, milliseconds; the rest is cut. */
const stopLimitMs = 4_500;
const drainLimitMs = 3_000;

/** A server that was built from settings. No globals: several fit in one process. */
export class Homeserver {
  #http: HttpApp | undefined;
  #served: ServedDatabase | undefined;
  #moduleServices: ModuleServices | undefined;
  #moreModules: readonly ModuleEntry[] = [];
  #tellDisplaced: (reason: Error) => void = () => {};

  /**
   * Resolves, with the reason, when another server took the database over while this one was cut off from it. This one then
   * stops by itself; a program that is nothing but this server ends at once. Otherwise open for ever.
   */
  readonly displaced = new Promise<Error>((resolve) => (this.#tellDisplaced = resolve));

  private constructor(
    readonly config: Config,
    /** Where it logs, for the program around it. */
    readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly modules: ModuleHost,
    /** What is below {@link logger}. */
    private readonly log: Logger,
  ) {}

  /** Puts a server together; nothing is opened before {@link start}. @throws Error when the log cannot be opened */
  static create(config: Config, overrides: HomeserverOverrides = {}): Homeserver {
    return Homeserver.#create(config, overrides);
  }

  /** @param rehearsalFolder where a rehearsal may write */
  static #create(config: Config, overrides: HomeserverOverrides, rehearsalFolder?: string): Homeserver {
    const clock = overrides.clock ?? new SystemClock();
    const ids = overrides.ids ?? new SystemIds();
    const log = overrides.logger ?? openLog(config);
    const reports = rehearsalFolder === undefined ? errorReportsOf(config, clock) : undefined;
    const logger = reports === undefined ? log : new ReportingLogger(log, reports);
    const metrics = new Metrics(config.serverName);
    const { place } = overrides;
    const lifecycle = new Lifecycle(clock, logger, isBesideWriter(place));
    beginCaches(config, isBesideWriter(place));
    // Numbers of every call cost something: they are kept where somebody can read them.
    const shown = config.get('enable_metrics') ? { metrics } : {};
    const modules = new ModuleHost({ clock, logger, ...shown, config, configDir: config.configDir });
    lifecycle.on('config', { name: 'error reports', everyProcess: true, stop: () => reports?.stop() });
    const server = new Homeserver(config, logger, lifecycle, modules, log);
    server.#moreModules = overrides.modules ?? [];
    server.#plan({
      ...{ clock, ids, metrics, rehearsalFolder, place },
      nameResolver: overrides.nameResolver ?? new SystemNameResolver(clock),
      entries: rehearsalFolder === undefined ? [...moduleEntriesOf(config), ...server.#moreModules] : [],
      updates: [...backgroundUpdates, ...(overrides.backgroundUpdates ?? [])],
    });
    return server;
  }

  /**
   * Builds a server as a start does, to see whether it would come to listen, and throws it away: on an empty database of its own,
   * without modules, and without writing or binding anything.
   * @throws what {@link start} would throw, as far as the settings and the files that they name decide it
   */
  static async rehearse(config: Config): Promise<void> {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-check-'));
    try {
      checkParts(config);
      for (const options of [databaseOptions(config), stateDatabaseOptions(config)])
        if (options !== undefined) checkDatabaseOptions(options);
      checkTls(httpSettingsOf(config));
      const server = Homeserver.#create(config, { logger: new SilentLogger() }, folder);
      // The first step behind what is built ends the start.
      server.lifecycle.on('streams', { name: 'end of the rehearsal', start: () => void server.stop() });
      await server.start();
      await server.stop();
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Starts everything, listeners last. @throws an error for which `startupMessage` has a line, when it is the operator's to mend */
  async start(): Promise<void> {
    for (const problem of this.config.warnings) this.logger.warn('Settings', { problem: describeProblem(problem) });
    await this.lifecycle.start(stopLimitMs);
  }

  /** Writes a line into the log that says what runs here. */
  logRunning(): void {
    const { serverName } = this.config;
    this.logger.info(`Rookery ${version} is running as ${serverName}`, {
      ...{
        version,
        server_name: serverName,
        database: this.service(Database).dialect.name,
        schema: this.#served?.schemaVersion,
      },
      ...{ listening: this.addresses.map(urlOf), modules: this.moduleNames },
    });
  }

  /** Answers what is under way, then stops everything. Never rejects. */
  stop(): Promise<void> {
    return this.lifecycle.stop(stopLimitMs);
  }

  /**
   * Takes over changed settings and modules, certificates included, without dropping a connection.
   * @throws ModuleLoadError when a module is wrong, SettingsError when the file of `log_config` is; then everything stays as it was.
   * What goes wrong afterwards is left, and in the log.
   */
  async reload(next: Config): Promise<ReloadReport> {
    // Also where nothing changed in the settings: the file that log_config names may have.
    const logging = loggerOptions(next);
    const { keptProviders, ...modules } = await this.modules.reload([...moduleEntriesOf(next), ...this.#moreModules]);
    const { changed, needRestart } = this.config.reload(next);
    const left: string[] = [];
    if (this.log instanceof PinoLogger && !this.log.setLevels(logging)) {
      left.push('of the log, levels hold; where lines go and how they look holds after a restart only');
      this.logger.warn('Where lines of the log go and how they look holds after a restart only');
    }
    try {
      this.#http?.reloadTls();
    } catch (err) {
      left.push('the TLS certificate could not be read again');
      this.logger.error('The TLS certificate could not be read again; the one from before stays in use', { err });
    }
    try {
      await this.#moduleServices?.refresh();
    } catch (err) {
      left.push('what runs for modules could not all be adapted to them; reload once more');
      this.logger.error('What runs for modules could not all be adapted to them', { err });
    }
    this.logger.info('Settings reloaded', { changed: [...changed], modules });
    if (needRestart.length > 0) {
      this.logger.warn('Settings that changed hold after a restart only', { settings: needRestart });
      left.push(`these settings hold after a restart only: ${needRestart.join(', ')}`);
    }
    for (const provider of keptProviders) {
      this.logger.warn('What a module provides is made once: restart the server where it is in use', provider);
      left.push(`what module ${provider.module} provides as ${provider.provider} stays until a restart`);
    }
    const { added, removed, changed: changedModules } = modules;
    return { changed: [...changed], modules: { added, changed: changedModules, removed }, left };
  }

  /** Keeps what modules let escape from ending the process; for programs that are nothing but this server. The result undoes it. */
  guardProcess(): () => void {
    return guardProcess(() => this.modules.running, this.logger.child('modules'));
  }

  /**
   * News of other processes may have been missed, or another one writes now: finds out how far everything is, and forgets what may be
   * true no more. The process that writes has missed nothing unless a stream has moved that others write as well, or somebody says so.
   * Never rejects.
   * @param hasMissed news were missed, whatever the streams say
   */
  async catchUp(hasMissed = false): Promise<void> {
    // Before, and while it starts, nothing is remembered.
    if (!this.lifecycle.running) return;
    const [streams, notifier] = [this.service(Streams), this.service(Notifier)];
    const positions = (): string => streams.names.map((name) => notifier.position(name)).join();
    const before = positions();
    const forget = (): void => this.service(Invalidations).forgetAll();
    try {
      await streams.catchUp(forget, hasMissed);
    } catch (err) {
      forget();
      this.logger.debug('The process that writes could not be asked', { err });
    }
    if (positions() !== before) notifier.wakeAll();
  }

  /** Another process was lost, and may have said nothing of what it changed last: forgets what may be true no more. */
  forgetHeard(): void {
    if (this.lifecycle.running) this.service(Invalidations).forgetAll();
  }

  /** Another process writes now: asks it what there is to do, and how far everything is. Never rejects. */
  async followWriter(): Promise<void> {
    this.leaveWriter();
    if (this.lifecycle.running) this.service(WorkSharing).beginAnew();
    await this.catchUp();
  }

  /** Nobody writes now: gives up what was passed on to the one before. */
  leaveWriter(): void {
    this.#http?.leaveWriter();
  }

  /** Where other processes of the server reach it. */
  get fellowsAddress(): ProcessAddress | undefined {
    return this.#http?.fellowsAddress;
  }

  /** Where the server listens. */
  get addresses(): readonly BoundAddress[] {
    return this.#http?.addresses ?? [];
  }

  /** Names of the loaded modules. */
  get moduleNames(): readonly string[] {
    return this.modules.dispatcher.modules;
  }

  /**
   * A service of the running server by its class, for tests and programs that embed it.
   * @throws Error when the server does not run, or has no such service
   */
  service<T>(type: abstract new (...args: never[]) => T): T {
    if (!this.#http) throw new Error('The server does not run');
    return this.#http.nest.get<T>(type as Type<T>, { strict: false });
  }

  /** Whether nobody has registered yet. */
  async isEmpty(): Promise<boolean> {
    return this.#http === undefined || !(await hasAccounts(this.service(Database)));
  }

  /** Requests that wait for news end with what they have. */
  #wakeAll(): void {
    if (this.#http) this.service(Notifier).endWaits();
  }

  #plan({
    clock,
    ids,
    metrics,
    nameResolver,
    entries,
    updates,
    rehearsalFolder,
    place,
  }: {
    clock: Clock;
    ids: Ids;
    metrics: Metrics;
    nameResolver: NameResolver;
    entries: readonly ModuleEntry[];
    updates: readonly BackgroundUpdate[];
    rehearsalFolder: string | undefined;
    place: ProcessPlace | undefined;
  }): void {
    const { config, lifecycle, logger, modules } = this;
    lifecycle.on('config', {
      ...{ name: 'media folder', everyProcess: true },
      start: () => {
        const problems = mediaFolderProblems(config);
        if (problems.length > 0) throw new SettingsError(problems);
      },
    });
    const tracer = config.get('opentracing.enabled') ? new Tracer(config, clock, logger.child('tracing')) : undefined;
    lifecycle.on('config', { name: 'traces', everyProcess: true, stop: () => tracer?.stop() });
    const tasks = new BackgroundTasks(
      clock,
      logger.child('background'),
      config.get('enable_metrics') ? metrics : undefined,
      tracer,
      failureLevel,
    );
    const database = (this.#served = new ServedDatabase({
      options:
        rehearsalFolder === undefined
          ? databaseOptions(config)
          : { name: 'sqlite3', path: join(rehearsalFolder, 'homeserver.db') },
      state: rehearsalFolder === undefined ? stateDatabaseOptions(config) : undefined,
      isBesideWriter: isBesideWriter(place),
      processNumber: place?.processNumber,
      onLost: (reason) => {
        this.#tellDisplaced(reason);
        void this.stop();
      },
    }));
    // Opened when the module graph is made, and closed when that is gone.
    lifecycle.on('migrate', { name: 'database', stop: () => database.close() });

    lifecycle.on('modules', {
      name: 'module graph',
      start: async () => {
        const loaded = await modules.import(entries);
        const root = RootModule.forRoot({
          kernel: { config, clock, ids, logger, metrics, lifecycle, tasks, modules },
          ...{ database, backgroundUpdates: updates, place, nameResolver },
          mayWriteKeys: rehearsalFolder === undefined,
        });
        const { built, empty } = await assemble(() =>
          HttpApp.create(root, {
            ...httpSettingsOf(config),
            ...{ clock, ids, logger: logger.child('http'), accessLogger: logger.child('access').child('http') },
            slowMs: config.get('log_slow_requests'),
            tracer,
            metrics: config.get('enable_metrics') ? metrics : undefined,
            explain: databaseProblem,
            forwarding: place && forwardingOf(place, () => (this.#http ? this.service(Streams) : undefined)),
            sharesPorts: place?.sharesPorts,
            notFoundPage: () => this.service(Pages).page('not_found.html'),
            healthy: () => isDatabaseThere(this.service(DataStores), clock),
          }),
        );
        this.#http = built;
        if (empty.length > 0) throw new StartupError(`Nothing was given to the ports ${empty.join(', ')}`);
        const services = (this.#moduleServices = this.service(ModuleServices));
        await services.register(loaded);
        lifecycle.on('streams', {
          name: 'module services',
          start: () => services.start(),
          stop: () => services.stop(),
        });
      },
      stop: async () => {
        this.#wakeAll();
        await tasks.stop();
        await modules.stop();
        const notifier = this.#http && this.service(Notifier);
        await this.#http?.nest.close();
        notifier?.close();
        await place?.bus.close();
      },
    });

    const manhole = manholeOf(config, logger.child('manhole'), () => ({
      ...{ server: this, config, database: this.#http && this.service(Database), modules: this.moduleNames },
    }));
    lifecycle.on('listen', {
      ...{ name: 'manhole', everyProcess: true },
      start: () => (rehearsalFolder === undefined ? manhole?.start() : undefined),
      stop: () => manhole?.stop(),
    });

    lifecycle.on('listen', {
      name: 'listeners',
      start: async () => {
        await this.#http?.listen();
      },
      stop: async () => {
        this.#wakeAll();
        await this.#http?.drain(drainLimitMs);
      },
    });
  }
}

/** How requests go to the process that writes, and answers wait for what others have to know. */
function forwardingOf(place: ProcessPlace, streamsOf: () => Streams | undefined): ForwardingOptions {
  const { bus, secret } = place;
  let streams: Streams | undefined;
  const told = (): Promise<unknown> | undefined => {
    const [telling, settling] = [bus.told(), (streams ??= streamsOf())?.settled()];
    return telling && settling ? Promise.all([telling, settling]) : (telling ?? settling);
  };
  const heard = (): Promise<unknown> | undefined => bus.heard();
  return place.name === place.writer
    ? { secret, listen: place.listen, heard, told }
    : { secret, writer: place.writerAddress, heard, told };
}

/** Where errors are reported to, if the settings name a place. */
function errorReportsOf(config: Config, clock: Clock): ErrorReports | undefined {
  const dsn = config.get('sentry.dsn');
  const environment = config.get('sentry.environment');
  return dsn === undefined
    ? undefined
    : new ErrorReports({ dsn, environment, serverName: config.serverName, release: `rookery@${version}` }, clock);
}
