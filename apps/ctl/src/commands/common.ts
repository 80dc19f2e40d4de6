import { type Config, describeProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';

/** What `-c` of most commands says. */
export const configHelp = 'settings file or folder; may be given several times (default: homeserver.yaml)';

/** Gathers an option that may be given several times. */
export const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

/** What is odd about the entries of modules: where `shadow` is misspelt, a module judges in earnest. */
export const oddEntries = (config: Config): string[] =>
  config.warnings.filter(({ setting }) => setting.startsWith('modules')).map(describeProblem);

/** Asks until two answers agree, three times at most. */
export async function askTwice(terminal: Terminal): Promise<string> {
  for (let attempt = 0; attempt < 3; attempt++) {
    const password = await terminal.askSecret('Password');
    if (password === '') terminal.note('A password must not be empty.');
    else if (password !== (await terminal.askSecret('The same again'))) terminal.note('The two differ.');
    else return password;
  }
  throw new CommandError('No password given', 2);
}

/** `1 row`, `1,234 rows`. */
export const many = (number: number, what: string): string =>
  `${number.toLocaleString('en-US')} ${what}${number === 1 ? '' : 's'}`;

/** `3 KiB`, `1.5 GiB`. */
export function inBytes(bytes: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  const number = bytes / 1024 ** power;
  return `${number < 10 && power > 0 ? number.toFixed(1) : Math.round(number)} ${units[power]}`;
}

/** `less than a second`, `40 seconds`, `12 minutes`. */
export function inTime(seconds: number): string {
  if (seconds < 1) return 'less than a second';
  if (seconds < 120) return many(Math.round(seconds), 'second');
  return seconds < 7200 ? many(Math.round(seconds / 60), 'minute') : many(Math.round(seconds / 3600), 'hour');
}
