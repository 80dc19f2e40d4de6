import { readFileSync } from 'node:fs';
import { isMap, isScalar, LineCounter, parseDocument, type YAMLMap } from 'yaml';
import { fileProblem, filesAt } from '@rookery/platform';
import { CommandError } from './command-error.js';
import type { SettingsLookup, WrittenSetting } from './releases/index.js';

/**
 * Settings as the files say them, whatever the server thinks of them: a file for an older release has names that it refuses.
 * Of what several files say the last one holds.
 * @throws CommandError when a file cannot be read, or is no YAML
 */
export function writtenSettings(paths: readonly string[]): SettingsLookup {
  const sources = paths.flatMap(filesOf).map(read);
  return (setting) => {
    const [section = '', ...rest] = setting.split('.');
    // As the server puts files together: a section is that of the last file that has it.
    const find = sources.findLast((source) => source([section]) !== undefined);
    return find?.([section, ...rest]);
  };
}

function filesOf(path: string): string[] {
  try {
    return filesAt(path);
  } catch (error) {
    throw new CommandError(`${path} cannot be read: ${fileProblem(error)}`);
  }
}

function read(file: string): (path: readonly string[]) => WrittenSetting | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${fileProblem(error)}`);
  }
  const lines = new LineCounter();
  const document = parseDocument(text, { version: '1.1', merge: true, lineCounter: lines, logLevel: 'silent' });
  const [problem] = document.errors;
  if (problem !== undefined) throw new CommandError(`${file} is not YAML: ${problem.message.split('\n')[0] ?? ''}`);
  return (path) => {
    let node: unknown = document.contents;
    let offset = 0;
    for (const name of path) {
      const pair = isMap(node)
        ? (node as YAMLMap).items.find(({ key }) => isScalar(key) && key.value === name)
        : undefined;
      if (pair === undefined) return undefined;
      offset = (pair.key as { readonly range?: readonly [number, number, number] }).range?.[0] ?? offset;
      node = pair.value;
    }
    const plain = document.getIn(path) as { toJSON?: () => unknown } | undefined;
    const value = typeof plain === 'object' && plain !== null && 'toJSON' in plain ? plain.toJSON?.() : plain;
    return { value, file, line: lines.linePos(offset).line };
  };
}
