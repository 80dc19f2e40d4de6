import { describeManifest, fitOf, misfitOf, ownApiVersion, readManifest } from '@rookery/module-host';
import { CommandError } from '../command-error.js';
import { runNpm } from '../npm.js';
import type { Terminal } from '../terminal.js';

/** By which packages that are modules are found. */
const keyword = 'rookery-module';
const maxFound = 50;

/** Shows the modules of the package registry that these words fit. @throws CommandError */
export function searchModules(words: readonly string[], terminal: Terminal): void {
  const found = ask(['search', '--json', `--searchlimit=${maxFound}`, `keywords:${keyword}`, ...words]);
  const packages = (Array.isArray(found) ? found : []) as readonly Partial<Record<string, unknown>>[];
  for (const { name, version, description } of packages)
    terminal.out(`${textOf(name)} ${textOf(version)}${description ? `  ${textOf(description)}` : ''}`);
  if (packages.length === 0) terminal.out(`No package with the keyword ${keyword} fits.`);
}

/** Shows what a package is, and whether this server loads it. @throws CommandError */
export function showModuleInfo(name: string, terminal: Terminal): void {
  const answer = ask(['view', name, '--json']);
  // Of several versions that fit, the last is the newest.
  const found = (Array.isArray(answer) ? answer.at(-1) : answer) as Readonly<Record<string, unknown>> | undefined;
  if (typeof found !== 'object' || found === null) throw new CommandError(`There is no package ${name}`);
  terminal.out(`${textOf(found['name'])} ${textOf(found['version'])}`);
  for (const [title, key] of [
    ['', 'description'],
    ['licence: ', 'license'],
    ['page: ', 'homepage'],
  ] as const)
    if (typeof found[key] === 'string') terminal.out(`  ${title}${textOf(found[key])}`);
  const needed = Object.keys((found['dependencies'] ?? {}) as object);
  if (needed.length > 0) terminal.out(`  needs: ${needed.map(textOf).join(', ')}`);
  if (found['rookery'] !== undefined) {
    try {
      for (const line of describeManifest(readManifest(name, found['rookery'], 'package.json')))
        terminal.out(`  ${textOf(line)}`);
    } catch (error) {
      terminal.out(`  FAILED ${textOf((error as Error).message)}`);
    }
  }
  const range = (found['peerDependencies'] as Readonly<Record<string, unknown>> | undefined)?.['@rookery/module-api'];
  const version = ownApiVersion();
  if (typeof range !== 'string') {
    terminal.out('  It does not say for which module API it is made; it may be no module.');
    return;
  }
  const fit = fitOf(range, version);
  if (fit === 'fits') terminal.out(`  module API ${textOf(range)}: this server has ${version}, and loads it`);
  else if (fit === 'another server') terminal.out(`  FAILED ${textOf(misfitOf(range, version))}`);
  else
    terminal.out(
      `  warning: made for module API ${textOf(range)}, this server has ${version}; what is newer is not there`,
    );
}

/** What others wrote, on one line and without what moves a terminal's cursor. */
const textOf = (value: unknown): string =>
  String(value)
    .replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ')
    .slice(0, 500);

/** What npm answers, as JSON. @throws CommandError */
function ask(args: readonly string[]): unknown {
  const { status, stdout, stderr } = runNpm([...args, '--loglevel=error']);
  if (status !== 0) {
    const [reason = 'no reason'] = stderr.split('\n').filter((line) => /^npm (error|ERR!) (?!code)/.test(line));
    throw new CommandError(`npm ${args[0]} failed: ${textOf(reason.replace(/^npm (error|ERR!) /, ''))}`);
  }
  try {
    return stdout.trim() === '' ? undefined : (JSON.parse(stdout) as unknown);
  } catch {
    throw new CommandError(`npm ${args[0]} answered with something else than JSON`);
  }
}
