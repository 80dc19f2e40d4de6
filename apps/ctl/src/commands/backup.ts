import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError } from 'commander';
import { fileProblem, loadConfig, SystemClock } from '@rookery/platform';
import { BackupFolder } from '../backup/backup-folder.js';
import { pruneBackups, verifyBackups } from '../backup/look-after.js';
import { makeBackup } from '../backup/make-backup.js';
import type { Retention } from '../backup/retention.js';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { askTwice, collect, configHelp, inBytes, inTime, many } from './common.js';
import { withDatabaseErrors } from './database-at.js';

interface FolderOptions {
  readonly passwordFile?: string;
}

interface KeepOptions {
  readonly keepLast?: number;
  readonly keepDaily?: number;
  readonly keepWeekly?: number;
  readonly keepMonthly?: number;
}

interface MakeOptions extends FolderOptions, KeepOptions {
  readonly config?: readonly string[];
  readonly to: string;
  readonly encrypt?: boolean;
}

interface FromOptions extends FolderOptions {
  readonly from: string;
}

const reportEveryMs = 5_000;

/** `rookery backup make|list|verify|prune` */
export function registerBackupCommands(program: Command, terminal: Terminal, version: string): void {
  const backup = program
    .command('backup')
    .description('Makes backups of database, media, keys and settings, and looks after them. Without a command: make.');
  keeping(
    backup
      .command('make', { isDefault: true })
      .description(
        'Makes a backup while the server runs. What earlier backups in the folder have is not written again; what was interrupted goes on when it is called again.',
      )
      .option('-c, --config <file>', configHelp, collect)
      .requiredOption('--to <folder>', 'folder for backups alone, best on another machine')
      .option('--encrypt', 'the first time: hide everything in the folder behind a password')
      .option('--password-file <file>', 'as --encrypt, with the password in this file instead of asking for it'),
  ).action((options: MakeOptions) => make(options, terminal, version));
  const reading = (name: string, description: string): Command =>
    backup
      .command(name)
      .description(description)
      .requiredOption('--from <folder>', 'folder with the backups')
      .option('--password-file <file>', 'file with the password, instead of asking for it');
  reading('list', 'Lists the backups in a folder, oldest first.')
    .option('--json', 'for programs')
    .action((options: FromOptions & { readonly json?: boolean }) => list(options, terminal));
  reading('verify', 'Reads a backup as a whole and says whether it could be restored.')
    .argument('[backup]', 'as listed. Default: the newest')
    .option('--all', 'all backups in the folder')
    .option('--quick', 'only whether everything is there')
    .action((id: string | undefined, options: FromOptions & { readonly all?: boolean; readonly quick?: boolean }) =>
      verify(id, options, terminal),
    );
  keeping(reading('prune', 'Removes backups that are not to be kept, and what only they needed.')).action(
    (options: FromOptions & KeepOptions) => prune(options, terminal),
  );
}

const keeping = (command: Command): Command =>
  command
    .option('--keep-last <number>', 'keep the newest ones', positive)
    .option('--keep-daily <number>', 'keep the last one of so many days', positive)
    .option('--keep-weekly <number>', 'keep the last one of so many weeks', positive)
    .option('--keep-monthly <number>', 'keep the last one of so many months', positive);

function positive(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('A number from 1 on.');
  return Number(text);
}

async function make(
  { config: files = ['homeserver.yaml'], to, ...options }: MakeOptions,
  terminal: Terminal,
  version: string,
): Promise<void> {
  // Who names a password relies on it: where the disk is not mounted, what is made is no open folder in its place.
  const encrypt = options.encrypt === true || options.passwordFile !== undefined;
  const config = loadConfig(files);
  const { databaseOptions, stateDatabaseOptions } = await import('@rookery/homeserver');
  const clock = new SystemClock();
  const startedAtMs = clock.monotonicMs();
  const isNew = !BackupFolder.exists(to);
  const folder = isNew
    ? await BackupFolder.create(to, encrypt ? await newPassword(options, terminal) : undefined)
    : await openFolder(to, options, terminal);
  if (encrypt && !folder.isSecret)
    throw new CommandError(`The backups in ${to} are not encrypted: give another folder for those that are to be`);
  const { manifest, newBytes, sameFiles } = await folder.alone(() =>
    withDatabaseErrors(() =>
      makeBackup({
        ...{ folder, config, version, clock, options: databaseOptions(config), state: stateDatabaseOptions(config) },
        onProgress: reporter(terminal, clock),
      }),
    ),
  );
  const { database, state, media, settings } = manifest;
  const bytes = [...database.parts, ...(state?.parts ?? [])].reduce((sum, part) => sum + part.bytes, 0);
  terminal.out(
    `Backup ${manifest.id} of ${manifest.serverName}: database ${inBytes(bytes)}, ${many(media.files, 'media file')} (${inBytes(media.fileBytes)}), ${many(settings.files.length, 'file')} of settings and keys.`,
  );
  terminal.out(
    `${inBytes(newBytes)} are new, ${many(sameFiles, 'media file')} as before; ${inTime((clock.monotonicMs() - startedAtMs) / 1000)}.`,
  );
  if (config.get('media_storage_providers').length > 0)
    terminal.note('What media_storage_providers hold is no part of the backup, but what lies in media_store_path.');
  if (isNew && folder.isSecret)
    terminal.note('Keep the password elsewhere as well: without it nobody can read the backup.');
  if (!folder.isSecret) terminal.note('The backup is not encrypted: it holds the signing key, and all messages.');
  const retention = retentionOf(options);
  if (retention !== undefined) await pruneAndTell(folder, retention, terminal);
}

async function list(options: FromOptions & { readonly json?: boolean }, terminal: Terminal): Promise<void> {
  const folder = await openFolder(options.from, options, terminal);
  const rows = [];
  for (const id of await folder.backups()) rows.push(await rowOf(folder, id));
  if (options.json) return terminal.out(JSON.stringify(rows, null, 2));
  if (rows.length === 0) terminal.out('There are no backups.');
  for (const row of rows)
    terminal.out(
      'problem' in row
        ? `${row.id}  cannot be restored: ${row.problem}`
        : `${row.id}  ${row.serverName}, ${row.database} ${inBytes(row.databaseBytes)}, ${many(row.mediaFiles, 'media file')} (${inBytes(row.mediaBytes)}), by ${row.madeBy}`,
    );
}

/** A backup as it is listed. One that is damaged hides none of the others. */
async function rowOf(folder: BackupFolder, id: string) {
  try {
    const { madeAtMs, madeBy, serverName, database, state, media } = await folder.manifest(id);
    return {
      ...{ id, madeAt: new Date(madeAtMs).toISOString(), madeBy, serverName, database: database.kind },
      databaseBytes: [...database.parts, ...(state?.parts ?? [])].reduce((sum, { bytes }) => sum + bytes, 0),
      mediaFiles: media.files,
      mediaBytes: media.fileBytes,
    };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return { id, problem: error.message };
  }
}

async function verify(
  id: string | undefined,
  options: FromOptions & { readonly all?: boolean; readonly quick?: boolean },
  terminal: Terminal,
): Promise<void> {
  const folder = await openFolder(options.from, options, terminal);
  const all = await folder.backups();
  const ids = options.all ? all : id === undefined ? all.slice(-1) : [id];
  if (ids.length === 0) throw new CommandError(`There are no backups in ${options.from}`);
  const clock = new SystemClock();
  const report = every(clock, (pieces: number) => terminal.note(many(pieces, 'piece')));
  const { damages, pieces } = await verifyBackups(folder, ids, options.quick ?? false, report);
  for (const { id: damaged, reason } of damages) terminal.out(`${damaged}: ${reason}`);
  if (damages.length > 0) {
    const broken = new Set(damages.map((damage) => damage.id)).size;
    throw new CommandError(
      `${many(broken, 'backup')} of ${ids.length} cannot be restored as a whole. Make a new one in another folder, and look at the disk.`,
    );
  }
  terminal.out(`${ids.join(', ')}: whole (${many(pieces, 'piece')}${options.quick ? ', not read' : ''}).`);
}

async function prune(options: FromOptions & KeepOptions, terminal: Terminal): Promise<void> {
  const retention = retentionOf(options);
  if (retention === undefined) throw new CommandError('Say which are kept: --keep-last 3, --keep-daily 7 ...', 2);
  await pruneAndTell(await openFolder(options.from, options, terminal), retention, terminal);
}

async function pruneAndTell(folder: BackupFolder, retention: Retention, terminal: Terminal): Promise<void> {
  const { removed, freedBytes } = await folder.alone(() => pruneBackups(folder, retention));
  terminal.out(
    removed.length === 0
      ? `No backup is too old${freedBytes > 0 ? `; ${inBytes(freedBytes)} that belonged to none were removed` : ''}.`
      : `Removed ${removed.join(', ')}: ${inBytes(freedBytes)} are free again.`,
  );
}

function retentionOf({ keepLast, keepDaily, keepWeekly, keepMonthly }: KeepOptions): Retention | undefined {
  const retention = {
    ...(keepLast !== undefined && { last: keepLast }),
    ...(keepDaily !== undefined && { daily: keepDaily }),
    ...(keepWeekly !== undefined && { weekly: keepWeekly }),
    ...(keepMonthly !== undefined && { monthly: keepMonthly }),
  };
  return Object.keys(retention).length === 0 ? undefined : retention;
}

/** Opens a folder of backups, asking for the password where there is one. @throws CommandError */
export const openFolder = (path: string, options: FolderOptions, terminal: Terminal): Promise<BackupFolder> =>
  BackupFolder.open(path, async () =>
    options.passwordFile === undefined
      ? terminal.askSecret('Password of the backups')
      : passwordIn(options.passwordFile),
  );

const newPassword = async ({ passwordFile }: FolderOptions, terminal: Terminal): Promise<string> =>
  passwordFile === undefined ? askTwice(terminal) : passwordIn(passwordFile);

function passwordIn(file: string): string {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${fileProblem(error)}`);
  }
  if (text === '') throw new CommandError(`${file} is empty`);
  return text;
}

/** Says now and then how far something has come. */
export function reporter(
  terminal: Terminal,
  clock: SystemClock,
): (what: string, bytes: number, ofBytes?: number) => void {
  return every(clock, (what: string, bytes: number, ofBytes?: number) =>
    terminal.note(`${what}: ${inBytes(bytes)}${ofBytes === undefined ? '' : ` of about ${inBytes(ofBytes)}`}`),
  );
}

function every<Args extends unknown[]>(clock: SystemClock, fn: (...args: Args) => void): (...args: Args) => void {
  let toldAtMs = clock.monotonicMs();
  return (...args) => {
    if (clock.monotonicMs() - toldAtMs < reportEveryMs) return;
    toldAtMs = clock.monotonicMs();
    fn(...args);
  };
}
