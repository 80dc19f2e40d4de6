import type { Command } from 'commander';
import { CommandError } from '../command-error.js';
import {
  type Change,
  compareReleases,
  concerns,
  type Release,
  releaseName,
  releases,
  releasesBetween,
  type SettingsLookup,
  standing,
} from '../releases/index.js';
import type { Terminal } from '../terminal.js';
import { many } from './common.js';
import { writtenSettings } from '../written-settings.js';

/** `rookery releases [version]` */
export function registerReleasesCommand(program: Command, terminal: Terminal): void {
  program
    .command('releases')
    .description('Lists the releases that change something for operators, or what one of them changes.')
    .argument('[version]', 'such as 1.62 or rookery-0.1.0; "all" for what holds in every release')
    .option('--json', 'for programs')
    .action((version: string | undefined, { json }: { readonly json?: boolean }) => {
      if (json) return terminal.out(JSON.stringify(version === undefined ? releases : [found(version)], null, 2));
      if (version !== undefined) return show(found(version), terminal);
      for (const release of releases) terminal.out(`${release.version.padEnd(14)} ${summary(release)}`);
    });
}

export interface NotesOptions {
  readonly from: string;
  readonly to?: string;
  readonly config?: readonly string[];
  readonly all?: boolean;
  readonly json?: boolean;
}

/** What changes between two releases for the settings given, in order. */
export function upgradeNotes({ from, to, config, all, json }: NotesOptions, running: string, terminal: Terminal): void {
  const [first, last] = [nameOf(from), nameOf(to ?? `rookery-${running}`)];
  if (compareReleases(first, last) > 0)
    throw new CommandError(`${last} is older than ${first}: see rookery rollback`, 2);
  const find: SettingsLookup = config === undefined ? () => undefined : writtenSettings(config);
  const notes = releasesBetween(first, last).flatMap(({ version, changes }) =>
    changes.flatMap((change) => {
      const where = config === undefined ? [] : concerns(change.concerns, find);
      return where === undefined && !all ? [] : [{ release: version, ...change, where }];
    }),
  );
  if (json) return terminal.out(JSON.stringify(notes, undefined, 2));
  let heading: string | undefined;
  for (const note of notes) {
    if (note.release !== heading) terminal.out(`${heading === undefined ? '' : '\n'}${note.release}`);
    heading = note.release;
    describe(note, terminal, note.where);
  }
  terminal.note(
    notes.length === 0
      ? `Nothing changes from ${first} to ${last}${config === undefined ? '' : ' with these settings'}.`
      : `${many(notes.length, 'change')} from ${first} to ${last}${config === undefined || all ? '' : ' with these settings; --all shows the others, too'}.`,
  );
}

function nameOf(text: string): string {
  const name = releaseName(text);
  if (name === undefined) throw new CommandError(`${text} is no release; write 1.62, or rookery-0.1.0`, 2);
  return name;
}

function found(text: string): Release {
  if (text === 'all') return { version: 'Holds in every release', changes: standing };
  const name = nameOf(text);
  const release = releases.find(({ version }) => version === name);
  if (release === undefined)
    throw new CommandError(`${name} changes nothing for operators, as far as the register goes`);
  return release;
}

const summary = ({ changes }: Release): string =>
  changes
    .map(({ about }) => about)
    .join('; ')
    .replace(/^(.{90}[^ ]*) .*$/, '$1 …');

function show({ version, changes, schema }: Release, terminal: Terminal): void {
  terminal.out(version);
  if (schema !== undefined)
    terminal.out(`  schema version ${schema.version}, served by programs that know ${schema.servedFrom} or newer`);
  for (const change of changes) describe(change, terminal);
}

function describe(
  { kind, about, what, remedy, here }: Change,
  terminal: Terminal,
  where: ReturnType<typeof concerns> = [],
): void {
  terminal.out(`  [${kind}] ${about}`);
  terminal.out(`      ${what}`);
  for (const { setting, file, line } of where) terminal.out(`      at ${file}:${line}: ${setting}`);
  if (remedy !== undefined) terminal.out(`      to do: ${remedy}`);
  if (here !== undefined) terminal.out(`      here: ${here}`);
}
