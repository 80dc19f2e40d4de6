import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import {
  claimDatabase,
  type Database,
  openDatabase,
  planRollback,
  readSchemaState,
  rollback,
  type SchemaRollback,
} from '@rookery/database';
import { type Config, loadConfig, SystemClock } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { runningPid } from '../process-control/control.js';
import { releaseName, releases } from '../releases/index.js';
import { collectorLog, removeCollectorLog } from '../rollback/collector-log.js';
import { selectOtherPrograms } from '../rollback/other-programs.query.js';
import { misfit, type Recipe, recipeFor, recipes, rowsTouched } from '../rollback/recipes.js';
import { setSetting } from '../rollback/set-setting.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp, inBytes, many } from './common.js';
import { placeOf, readingDatabase, readingStateDatabase, withDatabaseErrors } from './database-at.js';

interface Options {
  readonly to?: string;
  readonly config?: readonly string[];
  readonly collectorData?: string;
  readonly yes?: boolean;
}

/** Programs that do not have it know no database of its own for state. */
const stateLinkStep = 'rooms_19_state_link';

/** `rookery rollback plan|apply` */
export function registerRollbackCommands(program: Command, terminal: Terminal): void {
  const group = program.command('rollback').description('Goes back to an older release.');
  const names = `a way back by the release that is left: ${recipes.map(({ from }) => from).join(', ')}`;
  const shared = (command: Command): Command =>
    command
      .argument('[recipe]', names)
      .option('--to <version>', 'release to go back to, such as rookery-0.1.0 or 1.25.0')
      .option('-c, --config <file>', configHelp, collect)
      .option('--collector-data <folder>', 'data folder of the Prometheus whose write-ahead log 1.32.0 has filled');
  shared(group.command('plan'))
    .description('Says what going back takes, and whether it can be done at all. Changes nothing.')
    .action((name: string | undefined, options: Options) => run(name, options, false, terminal));
  shared(group.command('apply'))
    .description('Goes back. The server must be stopped; make a backup before.')
    .option('-y, --yes', 'do not ask')
    .action((name: string | undefined, options: Options) => run(name, options, true, terminal));
}

async function run(name: string | undefined, options: Options, apply: boolean, terminal: Terminal): Promise<void> {
  if ((name === undefined) === (options.to === undefined))
    throw new CommandError('Say which: --to VERSION, or the name of a way back', 2);
  const files = options.config ?? ['homeserver.yaml'];
  const own = options.to === undefined ? undefined : ownRelease(options.to);
  if (own !== undefined) return backToOwn(own, loadConfig(files), options, apply, terminal);
  const recipe = recipeFor({
    ...(name !== undefined && { from: name }),
    ...(options.to !== undefined && { to: options.to }),
  });
  if (recipe === undefined) {
    throw new CommandError(
      `There is no known way back ${name === undefined ? `to ${options.to}` : `from ${name}`}. Known are: ${recipes
        .map(({ from, to }) => `${from} to ${to}`)
        .join(
          ', ',
        )}, and Rookery's own releases: ${ownReleases().join(', ')}. Otherwise restore the backup made before the upgrade`,
    );
  }
  return byRecipe(recipe, files, options, apply, terminal);
}

const ownReleases = (): string[] =>
  releases.map(({ version }) => version).filter((version) => version.startsWith('rookery-'));

/** One of our own releases; they may be written without the name in front, where no other is called so. */
function ownRelease(text: string): { readonly version: string; readonly schema: number } | undefined {
  const name = releaseName(/^v?\d+\.\d+\.\d+$/.test(text) ? `rookery-${text.replace(/^v/, '')}` : text);
  const release = releases.find(({ version }) => version === name && version.startsWith('rookery-'));
  return release?.schema && { version: release.version, schema: release.schema.version };
}

async function backToOwn(
  { version, schema }: { readonly version: string; readonly schema: number },
  config: Config,
  options: Options,
  apply: boolean,
  terminal: Terminal,
): Promise<void> {
  const { migrations } = await import('@rookery/homeserver');
  const plan = await readingDatabase(config, async (db, where) => {
    if (db === undefined) throw new CommandError(`There is no database ${placeOf(where)}`);
    return planRollback(db, migrations, schema);
  });
  for (const line of describe(plan, version)) terminal.out(line);
  const apart = await readingStateDatabase(config, async (_, where) => placeOf(where));
  if (apart !== undefined && !plan.isServable && plan.steps.some(({ name }) => name === stateLinkStep))
    throw new CommandError(
      `The state lies in ${apart}, which that release does not know. Move it back first (rookery move-database, docs/operators/state-database.md). Nothing was changed.`,
    );
  if (plan.obstacles.length > 0)
    throw new CommandError(
      'It cannot be gone back to. Nothing was changed; restore the backup made before the upgrade.',
    );
  if (!apply) return;
  if (!plan.isServable) {
    await confirm(options, terminal);
    await withStoppedServer(config, (database) => rollback(database, migrations, schema));
    terminal.out(`Done: the database has schema version ${schema}.`);
  }
  terminal.out(
    `Now install the older release and start it: npm install -g @rookery/homeserver@${version.replace('rookery-', '')} && synctl start`,
  );
}

function describe({ from, to, isServable, steps, obstacles }: SchemaRollback, version: string): string[] {
  const name = version.replace('rookery-', 'Rookery ');
  if (isServable)
    return [`The database has schema version ${from}, which ${name} can serve as it is: nothing to undo.`];
  return [
    `The database has schema version ${from}, ${name} knows ${to}. ${
      steps.length === 0 && obstacles.length === 0
        ? 'There is no step to undo; what is left is to let that release have it.'
        : 'To undo, in this order:'
    }`,
    ...steps.map((step) => `  ${step.name}`),
    ...(obstacles.length > 0 ? ['There is no way back from:', ...obstacles.map((line) => `  ${line}`)] : []),
  ];
}

async function byRecipe(
  recipe: Recipe,
  files: readonly string[],
  options: Options,
  apply: boolean,
  terminal: Terminal,
): Promise<void> {
  const needsDatabase = recipe.steps.some((step) => step.inDatabase !== undefined);
  const log =
    recipe.steps.some((step) => step.collectorLog) && options.collectorData !== undefined
      ? collectorLog(options.collectorData)
      : undefined;
  const config = needsDatabase ? loadConfig(files) : undefined;
  terminal.out(`From ${recipe.from} to ${recipe.to}, with the server stopped:`);
  for (const step of recipe.steps) terminal.out(`  ${step.text}`);
  if (config !== undefined) {
    await readingDatabase(config, async (db, where) => {
      if (db === undefined) throw new CommandError(`There is no database ${placeOf(where)}`);
      const obstacle = misfit(recipe, await readSchemaState(db));
      if (obstacle !== undefined) throw new CommandError(`${obstacle}. Nothing was changed`);
      for (const line of await rowsTouched(recipe, db)) terminal.out(`    ${line}`);
    });
  }
  if (log !== undefined) terminal.out(`    ${log.folder}: ${many(log.parts.length, 'part')}, ${inBytes(log.bytes)}`);
  terminal.out(
    `  install release ${recipe.to} of that server: pip install <package>==${recipe.to}, or its older Debian package`,
  );
  if (recipe.later !== undefined) terminal.out(recipe.later);
  if (!apply) return;
  if (recipe.steps.some((step) => step.collectorLog) && log === undefined)
    throw new CommandError('Say with --collector-data where the data of the collector lie', 2);
  const setting = recipe.steps.find((step) => step.setting !== undefined)?.setting;
  const file = files.at(-1) ?? '';
  if (setting !== undefined && !existsSync(file))
    throw new CommandError(`${file} cannot be read: there is no such file`);
  await confirm(options, terminal);
  if (config !== undefined) {
    await withStoppedServer(config, (database) =>
      database.write(
        async (tx) => {
          // What was read before may have changed.
          const obstacle = misfit(recipe, await readSchemaState(tx));
          if (obstacle !== undefined) throw new CommandError(`${obstacle}. Nothing was changed`);
          for (const step of recipe.steps) await step.inDatabase?.(tx);
        },
        { name: 'rollback_recipe', limitMs: Infinity },
      ),
    );
  }
  if (log !== undefined) removeCollectorLog(log);
  if (setting !== undefined) setSetting(file, setting.path, setting.value);
  terminal.out(`Done. Now install release ${recipe.to} and start it.`);
}

async function confirm({ yes }: Options, terminal: Terminal): Promise<void> {
  if (yes) return;
  const answer = await terminal.ask('Is there a backup, and shall it be done? (yes/no)', 'no');
  if (answer.toLowerCase() !== 'yes') throw new CommandError('Nothing was changed.');
}

/** Calls a function with the database, which no server may use. @throws CommandError when one does */
async function withStoppedServer<T>(config: Config, fn: (database: Database) => Promise<T>): Promise<T> {
  const pidFile = config.get('pid_file');
  const pid = pidFile === undefined ? undefined : runningPid(pidFile);
  if (pid !== undefined) throw new CommandError(`The server runs (process ${pid} of ${pidFile}): stop it first`);
  const { databaseOptions } = await import('@rookery/homeserver');
  const options = databaseOptions(config);
  return withDatabaseErrors(async () => {
    const claim = await claimDatabase(options, { waitMs: 0 });
    try {
      const database = await openDatabase(options, new SystemClock());
      try {
        await assertAlone(database);
        return await fn(database);
      } finally {
        await database.close();
      }
    } finally {
      await claim.release();
    }
  });
}

/** Programs other than this one that are connected to a PostgreSQL database; SQLite does not tell. @throws CommandError */
async function assertAlone(database: Database): Promise<void> {
  if (database.dialect.name === 'sqlite') return;
  const others = await selectOtherPrograms(database);
  if (others.length > 0)
    throw new CommandError(
      `The database is in use (${others.map(({ name, total }) => `${name === '' ? 'no name' : name}: ${total}`).join(', ')}): stop the server first`,
    );
}
