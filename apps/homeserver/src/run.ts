import { type Config, isReadable, loadConfig, loggerOptions, SystemIds } from '@rookery/platform';
import { Command } from 'commander';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { Homeserver } from './create-homeserver.js';
import { writeFirstConfig } from './first-run.js';
import { type ReloadOutcome, reloadOutcomeFile, writeReloadOutcome } from './reload-outcome.js';
import { fileProblem, StartupError, startupMessage } from './startup-error.js';
import { version } from './version.js';
import { firstAdministratorCommand, welcomeScreen } from './welcome.js';

interface Options {
  readonly config?: string[];
  readonly serverName: string;
  readonly port?: string;
}

const program = new Command('rookery-homeserver')
  .description(
    'Runs the homeserver. Without --config it uses homeserver.yaml in this folder, and writes one on the first run.',
  )
  .version(version)
  .option('-c, --config <paths...>', 'settings files, or folders of *.yaml files; later ones win')
  .option('--server-name <name>', 'the name of a new server, on the first run', 'localhost')
  .option('--port <port>', 'the port of a new server, on the first run')
  .showHelpAfterError('(--help shows what can be given)')
  .parse();

/** Ends the process with the reason for a failed start, in a line where it is the operator's to mend. */
function fail(error: unknown): never {
  process.stderr.write(`${startupMessage(error) ?? (error as Error).stack ?? String(error)}\n`);
  process.exit(1);
}

function settingsFiles(options: Options): string[] {
  if (options.config !== undefined) return options.config.map((path) => resolve(path));
  const file = resolve('homeserver.yaml');
  const port = options.port === undefined ? undefined : Number(options.port);
  if (!existsSync(file)) writeFirstConfig({ file, serverName: options.serverName, port }, new SystemIds());
  return [file];
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

async function run(): Promise<void> {
  const files = settingsFiles(program.opts<Options>());
  const load = (): Config => loadConfig(files, { createSecrets: new SystemIds() });
  const server = Homeserver.create(load());
  const stop = (): void => void server.stop().then(() => process.exit(0));
  server.guardProcess();
  // At once: what is still under way could only write beside the other server.
  void server.displaced.then(fail);
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  await server.start();
  const pidFile = writePidFile(server.config);
  const tell = (outcome: ReloadOutcome): void => {
    if (pidFile !== undefined) writeReloadOutcome(pidFile, outcome);
  };
  process.on('SIGHUP', () => {
    Promise.resolve()
      .then(() => server.reload(load()))
      .then((report) => tell({ report }))
      .catch((error: unknown) => {
        const problem = startupMessage(error) ?? String(error);
        server.logger.error('Nothing was reloaded', { problem });
        tell({ problem });
      });
  });
  const [configFile] = files;
  const isEmpty = await server.isEmpty();
  server.logRunning();
  const logs = loggerOptions(server.config);
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
