import { spawnSync, type StdioOptions } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { environmentOf, environmentWith } from '@rookery/platform';
import { CommandError } from './command-error.js';

const maxOutputBytes = 64 * 1_048_576;

/** What came of a call of npm. */
export interface NpmOutcome {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * How npm is started: on the Node.js that runs this, for which packages may compile something. What brings its own Node.js has npm
 * beside that; where there is none, the one that the system has is taken.
 * @param node the program that runs this
 */
export function npmProgram(node: string): {
  readonly file: string;
  readonly options: { readonly shell?: boolean; readonly env?: NodeJS.ProcessEnv };
} {
  if (process.platform === 'win32') return { file: 'npm.cmd', options: { shell: true } };
  const { PATH } = environmentOf(['PATH']);
  const own = dirname(node);
  return {
    file: 'npm',
    options: { env: environmentWith({ PATH: PATH === undefined ? own : `${own}${delimiter}${PATH}` }) },
  };
}

/** Why npm did not start, and what helps. */
export const npmProblem = (error: NodeJS.ErrnoException): string =>
  error.code === 'ENOENT'
    ? 'npm is not installed. It comes with Node.js, but with some systems in a package of its own ("apt install npm", "apk add npm"). ' +
      'A file of code, or a folder without package.json, is added without it.'
    : `npm cannot be started: ${error.message}`;

/**
 * Runs npm to its end.
 * @param options where and how; what it prints is in the outcome unless `stdio` says otherwise
 * @throws CommandError when it cannot be started
 */
export function runNpm(
  args: readonly string[],
  options: { readonly cwd?: string; readonly stdio?: StdioOptions; readonly node?: string } = {},
): NpmOutcome {
  const { node = process.execPath, ...rest } = options;
  const { file, options: how } = npmProgram(node);
  return withCache((cache) => {
    const outcome = spawnSync(file, [...args, ...cache], {
      ...{ ...rest, ...how },
      encoding: 'utf8',
      maxBuffer: maxOutputBytes,
    });
    if (outcome.error) throw new CommandError(npmProblem(outcome.error));
    const { status, stdout, stderr } = outcome;
    return { status, stdout, stderr };
  });
}

/** Lets npm use a folder that is gone afterwards where it cannot write its own, as in a container that may only write its data. */
function withCache<T>(run: (args: readonly string[]) => T): T {
  if (hasCache()) return run([]);
  const folder = mkdtempSync(join(tmpdir(), 'rookery-npm-'));
  try {
    return run([`--cache=${folder}`]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function hasCache(): boolean {
  const { HOME, ...set } = environmentOf(['HOME', 'npm_config_cache', 'NPM_CONFIG_CACHE']);
  // Who says where it lies knows better.
  if (Object.keys(set).length > 0 || process.platform === 'win32') return true;
  try {
    const folder = join(HOME ?? homedir(), '.npm');
    if (!existsSync(folder)) mkdirSync(folder);
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
