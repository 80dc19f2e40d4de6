import { SigningKey } from '@rookery/events';
import type { Config, Ids } from '@rookery/platform';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileProblem, StartupError } from './startup-error.js';

/** Writes a file as a whole or not at all; readable by its owner only. */
export function writeWhole(file: string, text: string): void {
  const draft = `${file}.new`;
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(draft, text, { mode: 0o600, flush: true });
    renameSync(draft, file);
  } catch (error) {
    rmSync(draft, { force: true });
    throw new StartupError(`Cannot write ${file}: ${fileProblem(error)}`);
  }
}

/**
 * The keys that this server signs with, the current one first. The file is made when there is none.
 * @throws StartupError when the file cannot be read, written or understood
 */
export function loadSigningKeys(config: Config, ids: Ids): readonly SigningKey[] {
  const inline = config.get('signing_key');
  const file = config.get('signing_key_path') ?? join(config.configDir, `${config.serverName}.signing.key`);
  if (inline === undefined && !existsSync(file)) {
    writeWhole(file, `${SigningKey.generate(undefined, (length) => ids.bytes(length)).serialize()}\n`);
  }
  const where = inline === undefined ? file : config.where('signing_key');
  let text: string;
  try {
    text = inline ?? readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartupError(`Cannot read the signing key ${file}: ${fileProblem(error)}`);
  }
  try {
    const keys = SigningKey.parseFile(text);
    if (keys.length > 0) return keys;
  } catch (error) {
    throw new StartupError(`${where}: ${(error as Error).message}`);
  }
  throw new StartupError(
    `${where}: there is no signing key in it; restore it from a backup, since other servers know this one by its key`,
  );
}
