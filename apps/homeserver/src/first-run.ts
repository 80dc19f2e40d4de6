import { generateConfig, type Ids } from '@rookery/platform';
import { isValidServerName } from '@rookery/matrix-types';
import { existsSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { StartupError } from './startup-error.js';
import { writeWhole } from './signing-keys.js';

const secretLength = 50;

/** What {@link writeFirstConfig} needs. */
export interface FirstRun {
  /** The settings file to be made. */
  readonly file: string;
  readonly serverName: string;
  readonly port?: number | undefined;
}

/**
 * Writes the settings of a new server, with random secrets, unless the file exists.
 * @returns whether it was written
 * @throws StartupError
 */
export function writeFirstConfig({ file, serverName, port }: FirstRun, ids: Ids): boolean {
  if (existsSync(file)) return false;
  if (!isValidServerName(serverName)) {
    throw new StartupError(
      `'${serverName}' cannot be the name of a server: it is a domain name or an address, with a port or without`,
    );
  }
  const folder = dirname(file);
  const dataDir = join(folder, 'data');
  const secret = (): string => ids.letters(secretLength);
  const text = generateConfig({
    serverName,
    dataDir: relative(folder, dataDir),
    secrets: { registrationSharedSecret: secret(), macaroonSecretKey: secret(), formSecret: secret() },
    ...(port === undefined ? {} : { port }),
  });
  writeWhole(file, text);
  return true;
}
