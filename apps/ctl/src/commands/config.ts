import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import {
  checkConfig,
  Config,
  SettingsError,
  configurationSchema,
  describeProblem,
  fileProblem,
  generateConfig,
  readLogConfig,
  SystemIds,
} from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect } from './common.js';
import { schemaWithModules } from './module-schema.js';
import { processLines } from './process-lines.js';

interface CheckOptions {
  readonly config?: readonly string[];
  readonly strict?: boolean;
  readonly secretsInFiles?: boolean;
  readonly quiet?: boolean;
}

interface GenerateOptions {
  readonly serverName?: string;
  readonly dataDir: string;
  readonly output?: string;
  readonly force?: boolean;
  readonly reportStats?: boolean;
  readonly port?: number;
  readonly bind?: string[];
}

/** `rookery config check|generate|schema` */
export function registerConfigCommands(program: Command, terminal: Terminal): void {
  const config = program.command('config').description('Checks and makes settings files.');
  config
    .command('check')
    .description('Says what is wrong with settings files, without starting the server.')
    .argument(
      '[files...]',
      'settings files, or folders of *.yaml files, in the order in which the server gets them (default: homeserver.yaml)',
    )
    .option('-c, --config <file>', 'the same, as other commands take it; may be given several times', collect)
    .option('--strict', 'fail on warnings, too')
    .option('--secrets-in-files', 'refuse secrets that stand in the settings themselves')
    .option('-q, --quiet', 'say nothing when nothing is wrong')
    .action((named: string[], options: CheckOptions) => {
      const files = [...named, ...(options.config ?? [])];
      return check(files.length > 0 ? files : ['homeserver.yaml'], options, terminal);
    });
  config
    .command('generate')
    .description('Makes the settings file of a new server: SQLite, port 8008 of this machine, registration closed.')
    .option('-n, --server-name <name>', "the part of user ids behind the colon; asked for when it isn't given")
    .option('-d, --data-dir <folder>', 'where database and media lie', 'data')
    .option('-o, --output <file>', 'write there instead of to the standard output')
    .option('-f, --force', 'replace the file if it exists')
    .option('-p, --port <port>', 'where to listen', parsePort)
    .option('-b, --bind <addresses...>', 'addresses to listen on; in a container 0.0.0.0 (default: 127.0.0.1)')
    .option('--report-stats', 'send anonymous usage numbers')
    .action((options: GenerateOptions) => generate(options, terminal));
  config
    .command('schema')
    .description('Prints a JSON Schema of the settings, for editors.')
    .option('-c, --config <file>', 'with what the modules of these settings take; may be given several times', collect)
    .action(async ({ config: files }: { config?: string[] }) => {
      const schema = files ? await schemaWithModules(files) : configurationSchema();
      terminal.out(JSON.stringify(schema, null, 2));
    });
}

async function check(files: readonly string[], options: CheckOptions, terminal: Terminal): Promise<void> {
  const result = checkConfig(files, { noSecretsInConfig: options.secretsInFiles ?? false });
  const problems = [...result.problems];
  const logConfig = result.config?.get('log_config');
  if (logConfig !== undefined) {
    try {
      readLogConfig(logConfig);
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      problems.push(...error.problems);
    }
  }
  const registrations = result.config?.get('app_service_config_files') ?? [];
  if (result.config && registrations.length > 0) {
    // Loaded only where it is needed: it brings much with it.
    const { readRegistrations } = await import('@rookery/appservices');
    problems.push(...readRegistrations(registrations, result.config.serverName).problems);
  }
  if (result.config && !problems.some((problem) => problem.level === 'error')) {
    // What shows only when a server is built: templates, keys, certificates, what other files say. Loaded late for the same reason.
    const { startProblems } = await import('@rookery/homeserver');
    problems.push(...(await startProblems(result.config)));
  }
  for (const problem of problems) terminal.out(`${problem.level}: ${describeProblem(problem)}`);
  const errors = problems.filter((problem) => problem.level === 'error').length;
  const warnings = problems.length - errors;
  if (!options.quiet) {
    terminal.out(
      problems.length === 0 ? 'Nothing is wrong.' : `${count(errors, 'error')}, ${count(warnings, 'warning')}.`,
    );
    if ((result.config?.get('modules') ?? []).length > 0)
      terminal.out(`Modules are not loaded for this: rookery module check -c ${files.join(' -c ')}`);
    const processes = result.config ? processLines(result.config) : [];
    if (processes.length > 0) terminal.out(`\n${processes.join('\n')}`);
  }
  if (errors > 0) throw new CommandError('The server would not start with these settings.');
  if (options.strict && warnings > 0) throw new CommandError('There are warnings.');
}

const count = (number: number, what: string): string =>
  `${number === 0 ? 'no' : number} ${what}${number === 1 ? '' : 's'}`;

async function generate(options: GenerateOptions, terminal: Terminal): Promise<void> {
  const output = options.output;
  if (output !== undefined && !options.force && existsSync(output))
    throw new CommandError(`${output} exists; --force replaces it`);
  const serverName =
    options.serverName ?? (await terminal.ask('Server name (the part of user ids behind the colon)', 'localhost'));
  Config.fromObject({ server_name: serverName });
  const ids = new SystemIds();
  const secret = (): string => ids.letters(50);
  const text = generateConfig({
    serverName,
    dataDir: options.dataDir,
    secrets: { registrationSharedSecret: secret(), macaroonSecretKey: secret(), formSecret: secret() },
    reportStats: options.reportStats ?? false,
    ...(options.port === undefined ? {} : { port: options.port }),
    ...(options.bind === undefined ? {} : { bindAddresses: options.bind }),
  });
  if (output === undefined) {
    terminal.out(text.trimEnd());
    return;
  }
  try {
    mkdirSync(dirname(output), { recursive: true });
    writeFileSync(output, text, { mode: 0o600, flag: options.force ? 'w' : 'wx' });
  } catch (error) {
    throw new CommandError(`Cannot write ${output}: ${fileProblem(error)}`);
  }
  terminal.note(`Wrote ${resolve(output)}.`);
}

function parsePort(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 0 || port > 65535)
    throw new InvalidArgumentError('Expected a number from 0 to 65535.');
  return port;
}
