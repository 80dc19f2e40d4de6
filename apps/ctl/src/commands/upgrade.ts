import type { Command } from 'commander';
import { planUpgrade, type UpgradePlan } from '@rookery/database';
import { checkConfig, describeProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp, inBytes, inTime, many } from './common.js';
import { placeOf, readingDatabase, readingStateDatabase } from './database-at.js';
import { diskNeeds, diskOf } from './disk-needs.js';
import { type NotesOptions, upgradeNotes } from './releases.js';

interface CheckOptions {
  readonly config?: readonly string[];
  readonly json?: boolean;
}

/** `rookery upgrade check|notes` */
export function registerUpgradeCommands(program: Command, terminal: Terminal, version: string): void {
  const upgrade = program.command('upgrade').description('Says what an upgrade does, before it does it.');
  upgrade
    .command('check')
    .description(
      'Says what the first start of this version will do to the database and thinks of the settings, how long it takes, how much disk, and what cannot be undone. Changes nothing; the server may run.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .option('--json', 'for programs')
    .action((options: CheckOptions) => check(options, terminal, version));
  upgrade
    .command('notes')
    .description('Says what changes from one release to another, in order; with settings, what changes for them.')
    .requiredOption('--from <version>', 'release that runs now, such as 1.40')
    .option('--to <version>', 'release to go to. Default: this one')
    .option('-c, --config <file>', 'settings file or folder; may be given several times', collect)
    .option('--all', 'also what does not concern these settings')
    .option('--json', 'for programs')
    .action((options: NotesOptions) => upgradeNotes(options, version, terminal));
}

async function check(
  { config: files = ['homeserver.yaml'], json }: CheckOptions,
  terminal: Terminal,
  version: string,
): Promise<void> {
  const { config, problems } = checkConfig(files);
  const lines = problems.map((problem) => `${problem.level}: ${describeProblem(problem)}`);
  if (config === undefined) {
    if (json) terminal.out(JSON.stringify({ version, settings: lines }, null, 2));
    else for (const line of lines) terminal.out(line);
    throw new CommandError('This version would not start with these settings.');
  }
  const { migrations, stateMigrations } = await import('@rookery/homeserver');
  const state = await readingStateDatabase(config, async (db, options) => ({
    place: placeOf(options),
    disk: diskOf(options),
    plan: db && (await planUpgrade(db, stateMigrations)),
  }));
  await readingDatabase(config, async (db, options) => {
    const plan = db && (await planUpgrade(db, migrations));
    const disk = diskOf(options);
    const needs = diskNeeds([{ disk, plan }, ...(state === undefined ? [] : [state])]);
    if (json) {
      const ofState = state?.plan && { ...state.plan, freeBytes: state.disk?.freeBytes };
      const told = { version, ...plan, state: ofState, freeBytes: disk?.freeBytes, settings: lines };
      terminal.out(JSON.stringify(told, null, 2));
    } else {
      terminal.out(`Rookery ${version} and the database ${placeOf(options)}`);
      for (const line of plan === undefined ? ['There is no database yet: the first start makes one.'] : describe(plan))
        terminal.out(line);
      if (state !== undefined) {
        terminal.out(`State in ${state.place}`);
        for (const line of state.plan === undefined
          ? ['There is none yet: the first start makes it.']
          : describe(state.plan))
          terminal.out(line);
      }
      for (const { neededBytes, freeBytes } of needs)
        terminal.out(`Of disk ${inBytes(neededBytes)} are needed meanwhile, and ${inBytes(freeBytes)} free.`);
      terminal.out(lines.length === 0 ? 'The settings are as this version wants them.' : '\nSettings:');
      for (const line of lines) terminal.out(line);
    }
    const short = needs.find(({ neededBytes, freeBytes }) => neededBytes > freeBytes);
    if (short !== undefined)
      throw new CommandError(
        `The disk is too full: ${inBytes(short.neededBytes)} are needed, ${inBytes(short.freeBytes)} free.`,
      );
    if (problems.some((problem) => problem.level === 'error'))
      throw new CommandError('This version would not start with these settings.');
  });
}

/** The plan in words. */
function describe({ from, to, servedFrom, steps, running, queues }: UpgradePlan): string[] {
  if (from === undefined)
    return [`It is empty: the first start makes ${many(steps.length, 'step')} of schema version ${to}.`];
  const lines: string[] = [];
  if (steps.length === 0) lines.push(`Schema version ${from}: nothing to do.`);
  else {
    const seconds = steps.reduce((all, step) => all + step.seconds, 0);
    lines.push(
      from === to ? `Schema version ${from}, some steps are missing.` : `Schema version ${from} becomes ${to}.`,
      `${many(steps.length, 'step')} before the server answers, about ${inTime(seconds)}:`,
      ...steps.map(
        (step) =>
          `  ${step.name}: ${
            step.rows === 0
              ? 'nothing to go over'
              : `${many(step.rows, 'row')}, ${inTime(step.seconds)}${step.diskBytes > 0 ? `, ${inBytes(step.diskBytes)} of disk meanwhile` : ''}`
          }`,
      ),
    );
    const final = steps.filter((step) => step.final !== undefined);
    lines.push(
      final.length === 0
        ? `All of it can be undone: rookery rollback.`
        : `Cannot be undone, so make a backup first (rookery backup):`,
      ...final.map((step) => `  ${step.name}: ${step.final}`),
    );
  }
  lines.push(`Afterwards programs that know schema version ${servedFrom} or newer can serve the database.`);
  if (queues.length > 0) lines.push(`While the server runs, in the background: ${queues.join(', ')}.`);
  if (running.length > 0) lines.push(`Under way in the background already: ${running.join(', ')}.`);
  return lines;
}
