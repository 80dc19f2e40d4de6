import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { loadConfig } from '@rookery/platform';
import { temporaryFolder } from '@rookery/testing/internal';
import { settingsFiles } from './settings-files.js';

/** Writes a file, and hands on what names it. */
function write<T>(file: string, contents: object, name: T): T {
  writeFileSync(file, JSON.stringify(contents));
  return name;
}

describe('the files of a backup beside the database', () => {
  it('say which modules are installed, wherever they were', async () => {
    const folder = await temporaryFolder('rookery-settings-files-');
    const installed = ['modules/package.json', 'modules/package-lock.json', 'package.json'];
    for (const name of [...installed, 'modules/node_modules/one/package.json', 'one.mjs']) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), '{}');
    }
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(
      file,
      'server_name: rookery.test\nreport_stats: false\nmodules: [{module: one}, {module: ./one.mjs}]\n',
    );
    const found = await settingsFiles(loadConfig([file]));
    expect(found.filter(({ setting }) => setting === 'modules').map(({ path }) => path)).toEqual(
      installed.map((name) => join(folder, name)),
    );
  });

  it('are no folders of modules, however large', async () => {
    const folder = await temporaryFolder('rookery-settings-files-');
    const [code, file, list] = [join(folder, 'own'), join(folder, 'homeserver.yaml'), join(folder, 'list.txt')];
    mkdirSync(code);
    for (const name of [list, join(code, 'index.mjs')]) writeFileSync(name, '');
    const modules = JSON.stringify([{ module: code, config: { folder, list } }]);
    writeFileSync(file, `server_name: rookery.test\nreport_stats: false\nmodules: ${modules}\n`);
    const found = await settingsFiles(loadConfig([file]));
    expect(found.map(({ path }) => path)).toEqual([file, list]);
  });

  it.each([
    ['in line', (setup: object) => ({ sp_config: setup })],
    ['in a file', (setup: object, folder: string) => write(join(folder, 'sp.yaml'), setup, { config_path: 'sp.yaml' })],
  ])('are the keys of SAML and of the database, which stand beside the settings (%s)', async (_where, saml) => {
    const folder = await temporaryFolder('rookery-settings-files-');
    const names = ['sp.key', 'sp.crt', 'open.key', 'idp.xml', 'root.pem', 'client.key', 'worker.pid'];
    for (const name of names) writeFileSync(join(folder, name), '');
    const setup = {
      ...{ key_file: 'sp.key', cert_file: 'sp.crt', encryption_keypairs: [{ key_file: join(folder, 'open.key') }] },
      metadata: { local: ['idp.xml'] },
    };
    const args = { sslrootcert: join(folder, 'root.pem'), sslkey: join(folder, 'client.key') };
    const file = join(folder, 'homeserver.yaml');
    const settings = {
      ...{ server_name: 'rookery.test', report_stats: false, worker_pid_file: 'worker.pid' },
      database: { name: 'psycopg2', args },
      saml2_config: saml(setup, folder),
    };
    const found = (await settingsFiles(loadConfig([write(file, settings, file)]))).map(({ path }) => basename(path));
    expect(found).toEqual(expect.arrayContaining(names.slice(0, -1)));
    expect(found).not.toContain('worker.pid');
  });
});
