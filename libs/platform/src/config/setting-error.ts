import type { Config } from './config.js';
import { SettingsError, type ConfigProblem } from './problem.js';
import type { SettingName } from './table.js';

/** What is wrong with a setting, or with what lies at a path in it; names file and line. */
export function settingProblem(
  config: Config,
  name: SettingName,
  path: readonly (string | number)[],
  message: string,
): ConfigProblem {
  const setting = path.reduce<string>((text, key) => text + (typeof key === 'number' ? `[${key}]` : `.${key}`), name);
  const where = config.where(name, ...path);
  return { level: 'error', where: where === name ? undefined : where, setting, message };
}

/** A setting that only turned out to be wrong when it was used. The server refuses to start. */
export function settingError(...problem: Parameters<typeof settingProblem>): SettingsError {
  return new SettingsError([settingProblem(...problem)]);
}
