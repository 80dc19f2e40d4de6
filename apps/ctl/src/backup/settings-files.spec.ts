import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { loadConfig } from '@rookery/platform';
import { temporaryFolder } from '@rookery/testing/internal';
import { settingsFiles } from './settings-files.js';

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
});
