import { describeProblem, readSources } from '@rookery/platform';
import { CommandError } from './command-error.js';
import type { SettingsLookup } from './releases/index.js';

/**
 * Settings as the files say them, whatever the server thinks of them: a file for an older release has names that it refuses.
 * Of what several files say, or one says twice, the last holds.
 * @throws CommandError when a file cannot be read, or is no YAML
 */
export function writtenSettings(paths: readonly string[]): SettingsLookup {
  const { raw, problems, locate } = readSources(paths);
  const wrong = problems.find(({ level }) => level === 'error');
  if (wrong) throw new CommandError(describeProblem(wrong));
  return (setting) => {
    const path = setting.split('.');
    let value: unknown = raw;
    for (const name of path) {
      if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
      value = (value as Readonly<Record<string, unknown>>)[name];
    }
    const [, file = '', line] = /^(.*):(\d+)$/s.exec(locate(path) ?? '') ?? [];
    return { value, file, line: Number(line) };
  };
}
