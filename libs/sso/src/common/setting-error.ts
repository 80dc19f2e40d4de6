import { type Config, ConfigError, type SettingName } from '@rookery/platform';

/** A setting that only turned out to be wrong when it was used; names file and line. The server refuses to start. */
export function settingError(
  config: Config,
  name: SettingName,
  path: readonly (string | number)[],
  message: string,
): ConfigError {
  const shown = path.reduce<string>((text, key) => text + (typeof key === 'number' ? `[${key}]` : `.${key}`), name);
  return new ConfigError([{ level: 'error', where: placeOf(config, name, path), setting: shown, message }]);
}

function placeOf(config: Config, name: SettingName, path: readonly (string | number)[]): string | undefined {
  const where = config.where(name, ...path);
  return where === name ? undefined : where;
}
