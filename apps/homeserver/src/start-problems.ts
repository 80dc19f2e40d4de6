import { type Config, ConfigError, type ConfigProblem } from '@rookery/platform';
import { Homeserver } from './create-homeserver.js';
import { startupMessage } from './startup-error.js';

/**
 * What would end a start with settings that can be read: the first such thing, found by building a server that is thrown away.
 * Modules are not loaded, the database is not opened, and no address is bound.
 */
export async function startProblems(config: Config): Promise<readonly ConfigProblem[]> {
  try {
    await Homeserver.rehearse(config);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    const [message = ''] = (startupMessage(error) ?? String(error)).split('\n');
    return [{ level: 'error', where: undefined, setting: '', message }];
  }
}
