import { type Command, Option } from 'commander';
import { checkConfig, type Config, describeProblem, SystemClock } from '@rookery/platform';
import { claimDatabase, openDatabase } from '@rookery/database';
import { CommandError } from '../command-error.js';
import { type Check, error, type Finding, ok, showFindings, warning } from './doctor/finding.js';
import { certificateCheck, databaseCheck, diskCheck, moduleCheck, proxyCheck } from './doctor/local-checks.js';
import { registerCheck } from './doctor/register-check.js';
import { clientCheck, dnsCheck, federationCheck, mailCheck } from './doctor/remote-checks.js';
import { repairStatistics, statisticsCheck } from './doctor/statistics.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp } from './common.js';
import { besideModules } from './module-check.js';
import { assertThere, withDatabaseErrors } from './database-at.js';

interface Options {
  readonly config?: readonly string[];
  readonly offline?: boolean;
  readonly repair?: boolean;
  readonly mend?: boolean;
  readonly strict?: boolean;
  readonly json?: boolean;
}

const checks: readonly Check[] = [
  ...[databaseCheck, statisticsCheck, registerCheck, diskCheck, certificateCheck, proxyCheck, moduleCheck],
  ...[dnsCheck, clientCheck, federationCheck, mailCheck],
];

/** `rookery doctor` */
export function registerDoctorCommand(program: Command, terminal: Terminal): void {
  program
    .command('doctor')
    .description(
      'Looks at settings, database, statistics, what upgrades left to do, disk, certificates, proxy, modules, names, federation and mail, and says what is wrong and what to do. Changes nothing unless told. Ends with 1 when something is wrong.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .option('--offline', 'ask no other machine')
    .option(
      '--repair',
      'set the sequence of application service transactions right, and have wrong statistics counted anew from the next start on; the server must be stopped',
    )
    // Its name once.
    .addOption(new Option('--mend').hideHelp())
    .option('--strict', 'fail on warnings, too')
    .option('--json', 'for programs')
    .action((options: Options) => besideModules(() => doctor(options, terminal)));
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
    if (options.repair || options.mend) results.push({ name: 'repaired', findings: await repair(config) });
    for (const check of checks) {
      if (check.isRemote && options.offline) continue;
      results.push({ name: check.name, findings: await found(check, config, files) });
    }
  }
  if (options.json) terminal.out(JSON.stringify(results, null, 2));
  else for (const { name, findings } of results) showFindings(name, findings, terminal);
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

/** Sets right what can only be set right while no server runs. */
async function repair(config: Config): Promise<readonly Finding[]> {
  const { databaseOptions } = await import('@rookery/homeserver');
  const { mendSequence } = await import('@rookery/appservices');
  return withDatabaseErrors(async () => {
    const options = databaseOptions(config);
    await assertThere(options);
    const claim = await claimDatabase(options, { waitMs: 0 });
    try {
      const database = await openDatabase(options, new SystemClock());
      try {
        const position = await mendSequence(database);
        const counted = await repairStatistics(database, config);
        const done = [
          ...(position === undefined ? [] : [`the sequence of transactions stands at ${position} now`]),
          ...counted.map((what) => `${what} will be counted anew from the next start on`),
        ];
        return (done.length > 0 ? done : ['there was nothing to repair']).map(ok);
      } finally {
        await database.close();
      }
    } finally {
      await claim.release();
    }
  });
}
