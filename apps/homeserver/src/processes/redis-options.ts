import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { Config } from '@rookery/platform';
import type { RedisOptions } from '@rookery/replication';
import { StartupError } from '../startup-error.js';

/** Redis as the settings describe it. @throws StartupError when a certificate cannot be read */
export function redisOptions(config: Config): RedisOptions {
  const file = config.get('redis.ca_file');
  const folder = config.get('redis.ca_path');
  const authorities = [
    ...(file === undefined ? [] : [certificateIn(file)]),
    ...(folder === undefined ? [] : certificatesIn(folder)),
  ];
  const certificate = config.get('redis.certificate_file');
  const key = config.get('redis.private_key_file');
  return {
    host: config.get('redis.host'),
    port: config.get('redis.port'),
    path: config.get('redis.path'),
    username: config.get('redis.username'),
    password: config.get('redis.password'),
    database: config.get('redis.dbid'),
    tls: config.get('redis.use_tls')
      ? {
          ...(authorities.length > 0 && { ca: authorities }),
          cert: certificate === undefined ? undefined : read(certificate),
          key: key === undefined ? undefined : read(key),
        }
      : undefined,
  };
}

/** Something that holds no certificate is passed over without a word by what uses it. */
function certificateIn(file: string): string {
  const text = read(file);
  if (!text.includes('BEGIN CERTIFICATE')) throw new StartupError(`There is no certificate in ${file} (redis.ca_file)`);
  return text;
}

/** What lies in a folder of certificates, whatever the files are called; links by hash come twice, which does no harm. */
function certificatesIn(folder: string): string[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder, { withFileTypes: true })
      .filter((entry) => !entry.isDirectory())
      .map(({ name }) => name);
  } catch (error) {
    throw new StartupError(`Cannot read ${folder}: ${(error as Error).message}`);
  }
  const found = names.map((name) => read(join(folder, name))).filter((text) => text.includes('BEGIN CERTIFICATE'));
  if (found.length === 0) throw new StartupError(`There is no certificate in ${folder} (redis.ca_path)`);
  return found;
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new StartupError(`Cannot read ${file}: ${(error as Error).message}`);
  }
}

/** @throws StartupError when certificates or keys of the settings cannot be read or used */
export function checkRedisOptions(config: Config): void {
  const { tls } = redisOptions(config);
  if (tls === undefined) return;
  try {
    createSecureContext(tls);
  } catch (error) {
    const file = config.get('redis.certificate_file') ?? config.get('redis.ca_file') ?? '';
    throw new StartupError(`The certificates for Redis cannot be used (${file}): ${(error as Error).message}`);
  }
}
