import type { Command } from 'commander';
import { checkConfig, type Config, describeProblem, SystemClock } from '@rookery/platform';
import { claimDatabase, openDatabase } from '@rookery/database';
import { CommandError } from '../command-error.js';
import { type Check, error, type Finding, ok, warning } from './doctor/finding.js';
import { certificateCheck, databaseCheck, diskCheck, moduleCheck, proxyCheck } from './doctor/local-checks.js';
import { clientCheck, dnsCheck, federationCheck, mailCheck } from './doctor/remote-checks.js';
import type { Terminal } from '../terminal.js';
import { collect } from './common.js';
import { withDatabaseErrors } from './database-at.js';

interface Options {
  readonly config?: readonly string[];
  readonly offline?: boolean;
  readonly mend?: boolean;
  readonly strict?: boolean;
  readonly json?: boolean;
}

const checks: readonly Check[] = [
  ...[databaseCheck, diskCheck, certificateCheck, proxyCheck, moduleCheck],
  ...[dnsCheck, clientCheck, federationCheck, mailCheck],
];

/** `rookery doctor` */
export function registerDoctorCommand(program: Command, terminal: Terminal): void {
  program
    .command('doctor')
    .description(
      'Looks at settings, database, disk, certificates, proxy, modules, names, federation and mail, and says what is wrong and what to do. Changes nothing unless told.',
    )
    .option('-c, --config <file>', 'settings file or folder; may be given several times', collect)
    .option('--offline', 'ask no other machine')
    .option('--mend', 'set the sequence of application service transactions right; the server must be stopped')
    .option('--strict', 'fail on warnings, too')
    .option('--json', 'for programs')
    .action((options: Options) => doctor(options, terminal));
}

async function doctor({ config: files = ['homeserver.yaml'], ...options }: Options, terminal: Terminal): Promise<void> {
  const { config, problems } = checkConfig(files);
  const results: { readonly name: string; readonly findings: readonly Finding[] }[] = [
    {
      name: 'settings',
      findings:
        problems.length === 0
          ? [ok('nothing is wrong')]
          : problems.map((problem) => (problem.level === 'error' ? error : warning)(describeProblem(problem))),
    },
  ];
  if (config !== undefined) {
    if (options.mend) results.push({ name: 'mended', findings: await mend(config) });
    for (const check of checks) {
      if (check.isRemote && options.offline) continue;
      results.push({ name: check.name, findings: await found(check, config, files) });
    }
  }
  if (options.json) terminal.out(JSON.stringify(results, null, 2));
  else for (const { name, findings } of results) show(name, findings, terminal);
  const of = (level: Finding['level']): number =>
    results.flatMap(({ findings }) => findings).filter((finding) => finding.level === level).length;
  if (of('error') > 0) throw new CommandError(`Wrong: ${of('error')}; to look at: ${of('warning')}.`);
  if (options.strict && of('warning') > 0) throw new CommandError(`To look at: ${of('warning')}.`);
}

async function found(check: Check, config: Config, files: readonly string[]): Promise<readonly Finding[]> {
  try {
    return await check.run(config, files);
  } catch (reason) {
    const [text = '', ...remedy] = (reason as Error).message.split('\n');
    return [error(text, remedy.length > 0 ? remedy.join(' ') : undefined)];
  }
}

function show(name: string, findings: readonly Finding[], terminal: Terminal): void {
  const marks = { ok: 'ok     ', warning: 'warning', error: 'WRONG  ' };
  for (const { level, text, remedy } of findings) {
    terminal.out(`${marks[level]} ${name}: ${text}`);
    if (remedy !== undefined) terminal.out(`        ${remedy}`);
  }
}

/** Sets right what can only be set right while no server runs. */
async function mend(config: Config): Promise<readonly Finding[]> {
  const { databaseOptions } = await import('@rookery/homeserver');
  const { mendSequence } = await import('@rookery/appservices');
  return withDatabaseErrors(async () => {
    const options = databaseOptions(config);
    const claim = await claimDatabase(options, { waitMs: 0 });
    try {
      const database = await openDatabase(options, new SystemClock());
      try {
        const position = await mendSequence(database);
        return [
          ok(
            position === undefined
              ? 'there was nothing to mend'
              : `the sequence of transactions stands at ${position} now`,
          ),
        ];
      } finally {
        await database.close();
      }
    } finally {
      await claim.release();
    }
  });
}
