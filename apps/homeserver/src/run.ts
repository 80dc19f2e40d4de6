import { type Config, fileProblem, isReadable, loadConfig, loggerOptions, SystemIds } from '@rookery/platform';
import { Command, InvalidArgumentError, Option } from 'commander';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, resolve } from 'node:path';
import { Homeserver, type ReloadReport } from './create-homeserver.js';
import { writeFirstConfig } from './first-run.js';
import { AmongProcesses } from './processes/among-processes.js';
import { WatchedProcesses, type WatchMessage } from './processes/watch-processes.js';
import { type ReloadOutcome, reloadOutcomeFile, writeReloadOutcome } from './reload-outcome.js';
import { loadSigningKeys } from './signing-keys.js';
import { openLog } from './open-log.js';
import { checkParts, StartupError, startupMessage } from './startup-error.js';
import { version } from './version.js';
import { firstAdministratorCommand, welcomeScreen } from './welcome.js';

interface Options {
  readonly config?: string[];
  readonly configPath?: string[];
  readonly secretsInConfig: boolean;
  readonly serverName?: string;
  readonly port?: number;
  readonly processes: number;
  readonly oneOf?: number;
}

/** A server as this program handles it, whether it is a whole one or a process among others. */
interface Running {
  readonly server: Homeserver;
  reload(next: Config): Promise<ReloadReport>;
  stop(): Promise<void>;
}

const port = (text: string): number => {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > 65_535) throw new InvalidArgumentError('Expected 0 to 65535.');
  return value;
};

const count = (text: string): number => {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 64) throw new InvalidArgumentError('Expected 1 to 64.');
  return value;
};

const program = new Command('rookery-homeserver')
  .description(
    'Runs the homeserver. Without --config it uses homeserver.yaml in this folder, and writes one on the first run.',
  )
  .version(version)
  .option('-c, --config <paths...>', 'settings files, or folders of *.yaml files; later ones win')
  .option('--config-path <paths...>', 'the same, under the name that units and scripts of other servers use')
  .option('--no-secrets-in-config', 'refuse settings that hold secrets themselves instead of naming their files')
  .option('--server-name <name>', 'the name of a new server, on the first run (default: "localhost")')
  .option('--port <port>', 'the port of a new server, on the first run', port)
  .option(
    '--processes <count>',
    'how many processes of this machine are the server, with PostgreSQL and Redis',
    count,
    1,
  )
  .addOption(new Option('--one-of <count>', 'a process that another one watches').argParser(count).hideHelp())
  .showHelpAfterError('(--help shows what can be given)')
  .parse();

/** Ends the process with the reason for a failed start, in a line where it is the operator's to mend. */
function fail(error: unknown): never {
  process.stderr.write(`${startupMessage(error) ?? (error as Error).stack ?? String(error)}\n`);
  process.exit(1);
}

function settingsFiles(options: Options): string[] {
  const named = [...(options.config ?? []), ...(options.configPath ?? [])];
  if (named.length > 0) {
    const [missing] = named.filter((path) => !existsSync(path));
    if (missing !== undefined)
      throw new StartupError(
        `There is no ${resolve(missing)}\nrookery config generate --output ${missing} makes the settings of a new server`,
      );
    return named.map((path) => resolve(path));
  }
  const file = resolve('homeserver.yaml');
  if (!existsSync(file)) {
    const { serverName = 'localhost', port } = options;
    writeFirstConfig({ file, serverName, port }, new SystemIds());
  }
  return [file];
}

/** What only a first run takes must not be passed over in silence afterwards. @throws StartupError where the settings say otherwise */
function refuseLateOptions({ serverName, port }: Options, config: Config, files: readonly string[]): void {
  const where = files.join(', ');
  if (serverName !== undefined && serverName !== config.serverName)
    throw new StartupError(
      `--server-name ${serverName} comes too late: ${where} says ${config.serverName}, and the name of a server never changes. Begin another server in another folder`,
    );
  if (port !== undefined && !config.get('listeners').some((listener) => listener.port === port))
    throw new StartupError(`--port ${port} comes too late: change the port of the listener in ${where}`);
}

/** There is one worker of each name. @throws StartupError where one is to be several processes */
function refuseSeveralOfOne(processes: number, config: Config, files: readonly string[]): void {
  if (processes === 1 || config.get('worker_app') === undefined) return;
  throw new StartupError(
    `--processes ${processes} starts processes that are all alike, and ${files.join(', ')} says that this one is a worker (worker_app): there is one of each name. Leave out --processes, or the worker's file`,
  );
}

/** Leaves the process id where the settings want it, until the process ends. @returns where @throws StartupError */
function writePidFile(config: Config): string | undefined {
  const file = config.get('worker_app') === undefined ? config.get('pid_file') : config.get('worker_pid_file');
  if (file === undefined) return undefined;
  if (config.get('print_pidfile')) process.stdout.write(`${file}\n`);
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${process.pid}\n`);
  } catch (error) {
    throw new StartupError(`Cannot write the pid file ${file}: ${fileProblem(error)}`);
  }
  process.once('exit', () => {
    rmSync(file, { force: true });
    rmSync(reloadOutcomeFile(file), { force: true });
  });
  return file;
}

/**
 * Ends in order on SIGTERM and SIGINT, however often they come: a terminal tells every process of a command, a service manager every process of
 * a unit, and whoever started this one passes it on as well.
 * @returns does the same without a signal
 */
function stopOnSignals(end: () => Promise<void>): () => void {
  let ended: Promise<void> | undefined;
  const stop = (): void => void (ended ??= end().then(() => process.exit(0)));
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  return stop;
}

/** Runs as many processes as are asked for, each of which is this program. */
async function watch(files: readonly string[], config: Config, { processes, secretsInConfig }: Options): Promise<void> {
  if (!config.get('redis.enabled'))
    throw new StartupError('--processes needs redis.enabled: true, and a Redis or Valkey server');
  // Once, before there are several to make it.
  loadSigningKeys(config, new SystemIds());
  const args = ['--config', ...files, '--one-of', String(processes)];
  if (!secretsInConfig) args.push('--no-secrets-in-config');
  const logger = openLog(config);
  // What may fail comes before there are processes that nobody watches.
  const pidFile = writePidFile(config);
  const watched = new WatchedProcesses({ count: processes, program: process.argv[1] ?? '', args, logger });
  stopOnSignals(() => watched.stop());
  process.on('SIGHUP', () => {
    void watched.reload().then((outcome) => pidFile !== undefined && writeReloadOutcome(pidFile, outcome));
  });
  await watched.failed;
  await watched.stop();
  process.exit(1);
}

/** Answers whoever watches this process. */
function beWatched(): void {
  process.send?.('ready' satisfies WatchMessage);
  process.on('message', (message: WatchMessage) => {
    if (message === 'ping') process.send?.('pong' satisfies WatchMessage, undefined, undefined, () => {});
  });
}

/** So long a start that is to end may take to leave nothing behind, milliseconds. */
const abandonMs = 5_000;

/** @returns the process, once it has begun */
async function startAmongOthers(config: Config, isOneOfSeveral: boolean): Promise<AmongProcesses> {
  const logger = openLog(config);
  const stopping = new AbortController();
  const isWorker = config.get('worker_app') !== undefined;
  let stopGuarding = (): void => {};
  const name = isWorker ? (config.get('worker_name') ?? 'worker') : `${hostname()}-${process.pid}`;
  const starting = AmongProcesses.start(
    config,
    {},
    {
      ...{ name, logger, canWrite: !isWorker, sharesPorts: isOneOfSeveral, signal: stopping.signal },
      ...{ host: config.get('processes.address'), encrypted: config.get('processes.tls') },
      onServer: (server) => {
        stopGuarding();
        stopGuarding = server.guardProcess();
      },
    },
  );
  let begun: AmongProcesses | undefined;
  const stop = stopOnSignals(() => {
    stopping.abort();
    if (begun) return begun.stop();
    const enough = new Promise<void>((resolve) => setTimeout(resolve, abandonMs));
    return Promise.race([starting.then((among) => among.stop()).catch(() => undefined), enough]);
  });
  // It ends with whoever watches it, from the beginning.
  if (isOneOfSeveral) process.once('disconnect', stop);
  try {
    begun = await starting;
  } catch (error) {
    // The process ends, which is no failure.
    if (stopping.signal.aborted) await new Promise<never>(() => undefined);
    throw error;
  }
  // At once: what is still under way could only write beside whoever took over.
  void begun.lost.then(fail);
  return begun;
}

function startAlone(config: Config): Homeserver {
  const server = Homeserver.create(config);
  server.guardProcess();
  // At once: what is still under way could only write beside the other server.
  void server.displaced.then(fail);
  return server;
}

async function run(): Promise<void> {
  const options = program.opts<Options>();
  const files = settingsFiles(options);
  const load = (): Config =>
    loadConfig(files, { createSecrets: new SystemIds(), noSecretsInConfig: !options.secretsInConfig });
  const config = load();
  refuseLateOptions(options, config, files);
  refuseSeveralOfOne(options.processes, config, files);
  checkParts(config);
  if (options.processes > 1) return watch(files, config, options);
  // One that comes while the server starts would end it. What it is to read may have changed since it read its settings.
  let isReloadWanted = false;
  let reload = (): void => void (isReloadWanted = true);
  process.on('SIGHUP', () => reload());
  let running: Running;
  if (config.get('redis.enabled')) running = await startAmongOthers(config, options.oneOf !== undefined);
  else {
    const server = startAlone(config);
    running = { server, reload: (next) => server.reload(next), stop: () => server.stop() };
    stopOnSignals(() => server.stop());
    await server.start();
  }
  const { server } = running;
  const pidFile = options.oneOf === undefined ? writePidFile(server.config) : undefined;
  if (options.oneOf !== undefined) beWatched();
  const tell = (outcome: ReloadOutcome): void => {
    if (pidFile !== undefined) writeReloadOutcome(pidFile, outcome);
    if (options.oneOf !== undefined)
      process.send?.({ reloaded: outcome } satisfies WatchMessage, undefined, undefined, () => {});
  };
  reload = () => {
    Promise.resolve()
      .then(() => running.reload(load()))
      .then((report) => tell({ report }))
      .catch((error: unknown) => {
        const problem = startupMessage(error) ?? String(error);
        running.server.logger.error('Nothing was reloaded', { problem });
        tell({ problem });
      });
  };
  if (isReloadWanted) reload();
  const [configFile] = files;
  const isEmpty = await server.isEmpty();
  server.logRunning();
  const logs = loggerOptions(server.config);
  if (options.oneOf !== undefined) return;
  // Whoever reads the standard output as a log in JSON gets nothing else there.
  if (logs.file === undefined && !isReadable(logs)) {
    const command = firstAdministratorCommand(configFile);
    if (isEmpty) server.logger.info('There is no account yet: make the first administrator', { command });
    return;
  }
  process.stdout.write(
    `\n${welcomeScreen({
      version,
      serverName: server.config.serverName,
      addresses: server.addresses,
      configFile,
      publicBaseUrl: server.config.isGiven('public_baseurl') ? server.config.get('public_baseurl') : undefined,
      isEmpty,
      modules: server.moduleNames,
    })}\n`,
  );
}

try {
  await run();
} catch (error) {
  fail(error);
}
