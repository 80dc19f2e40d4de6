import { SigningKey } from '@rookery/events';
import { type OldKey, OwnKeys } from '@rookery/federation-client';
import { type Config, fileProblem, type Ids, settingError } from '@rookery/platform';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StartupError } from './startup-error.js';

/** Writes a file as a whole or not at all; readable by its owner only. */
export function writeWhole(file: string, text: string): void {
  const draft = `${file}.new`;
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(draft, text, { mode: 0o600, flush: true });
    renameSync(draft, file);
  } catch (error) {
    // Where its folder is none, there is nothing to remove, and asking for it would be an error of its own.
    if (existsSync(draft)) rmSync(draft, { force: true });
    throw new StartupError(`Cannot write ${file}: ${fileProblem(error)}`);
  }
}

/**
 * The keys that this server signs with, the current one first. The file is made when there is none, unless nothing may be
 * written.
 * @throws StartupError when the file cannot be read, written or understood
 */
export function loadSigningKeys(config: Config, ids: Ids, { mayWrite = true } = {}): readonly SigningKey[] {
  const inline = config.get('signing_key');
  const file = config.get('signing_key_path') ?? join(config.configDir, `${config.serverName}.signing.key`);
  if (inline === undefined && !existsSync(file)) {
    const made = SigningKey.generate(undefined, (length) => ids.bytes(length));
    if (!mayWrite) return [made];
    writeWhole(file, `${made.serialize()}\n`);
  }
  const where = inline === undefined ? file : config.where('signing_key');
  const keys = parseKeys(inline ?? readKeyFile(file), where);
  if (keys.length > 0) return keys;
  throw new StartupError(
    `${where}: there is no signing key in it; restore it from a backup, since other servers know this one by its key`,
  );
}

/**
 * All keys of this server: those that sign, those of the past, and those that sign when it vouches for other servers' keys.
 * @throws StartupError when a file cannot be read, written or understood; SettingsError when a key of the past is none
 */
export function loadOwnKeys(config: Config, ids: Ids, options: { readonly mayWrite?: boolean } = {}): OwnKeys {
  const signing = loadSigningKeys(config, ids, options);
  const notaryFile = config.get('key_server_signing_keys_path');
  const notary = notaryFile === undefined ? undefined : parseKeys(readKeyFile(notaryFile), notaryFile);
  if (notary?.length === 0) throw new StartupError(`${notaryFile}: there is no signing key in it`);
  const old = Object.entries(config.get('old_signing_keys')).map(([keyId, { key, expired_ts }]): OldKey => ({
    keyId,
    publicKey: key,
    expiredTs: expired_ts,
  }));
  try {
    return new OwnKeys(config.serverName, signing, old, notary);
  } catch (error) {
    throw settingError(config, 'old_signing_keys', [], (error as Error).message);
  }
}

function readKeyFile(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartupError(`Cannot read the signing key ${file}: ${fileProblem(error)}`);
  }
}

function parseKeys(text: string, where: string): readonly SigningKey[] {
  try {
    return SigningKey.parseFile(text);
  } catch (error) {
    throw new StartupError(`${where}: ${(error as Error).message}`);
  }
}
