import { type Config, fileProblem, loggerOptions, PinoLogger } from '@rookery/platform';
import { StartupError } from './startup-error.js';

/** The log that the settings want. @throws StartupError when a file of it cannot be opened, SettingsError when `log_config` is wrong */
export function openLog(config: Config): PinoLogger {
  const options = loggerOptions(config);
  try {
    return PinoLogger.create(options);
  } catch (error) {
    const { path } = error as NodeJS.ErrnoException;
    if (path === undefined) throw error;
    throw new StartupError(`Cannot write the log ${path}: ${fileProblem(error)}`);
  }
}
