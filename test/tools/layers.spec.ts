import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** A small house with the real rules, in which breaches can be planted. */
function house(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-layers-'));
  cpSync(join(root, '.dependency-cruiser.cjs'), join(folder, '.dependency-cruiser.cjs'));
  cpSync(join(root, 'tsconfig.base.json'), join(folder, 'tsconfig.base.json'));
  cpSync(join(root, 'tsconfig.check.json'), join(folder, 'tsconfig.check.json'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  mkdirSync(join(folder, 'node_modules', '@rookery'), { recursive: true });
  for (const name of ['pg', 'typescript', '@nestjs']) {
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name));
  }
  const sound: Record<string, string> = {
    'libs/matrix-types/src/index.ts': 'export const a = 1;\n',
    'libs/events/src/index.ts': `export { a } from '@rookery/matrix-types';\n`,
    'libs/platform/src/index.ts': 'export const p = 1;\n',
    'libs/users/src/index.ts': `import { p } from '@rookery/platform';\nexport const u = p;\n`,
    'libs/users/src/inner.ts': 'export const inner = 1;\n',
    'libs/rooms/src/index.ts': `import { u } from '@rookery/users';\nexport const r = u;\n`,
    'libs/module-api/src/index.ts': 'export const m = 1;\n',
    'libs/testing/src/index.ts': 'export const t = 1;\n',
    'modules-examples/one/src/index.ts': `import { m } from '@rookery/module-api';\nexport const e = m;\n`,
    'apps/homeserver/src/index.ts': `import { r } from '@rookery/rooms';\nexport const s = r;\n`,
  };
  for (const [path, text] of Object.entries({ ...sound, ...files })) {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    const [, name] = /^libs\/([^/]+)\/src\/index\.ts$/.exec(path) ?? [];
    if (name === undefined) continue;
    writeFileSync(
      join(folder, 'libs', name, 'package.json'),
      JSON.stringify({
        name: `@rookery/${name}`,
        type: 'module',
        exports: { '.': { '@rookery/source': './src/index.ts', default: './dist/index.js' }, './*': './*' },
      }),
    );
    symlinkSync(join(folder, 'libs', name), join(folder, 'node_modules', '@rookery', name));
  }
  return folder;
}

function breaches(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const folder = house(files);
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const bin = join(root, 'node_modules/dependency-cruiser/bin/dependency-cruiser.mjs');
  const args = [bin, '--config', '.dependency-cruiser.cjs', 'libs', 'apps', 'modules-examples'];
  const result = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8', env: environment });
  rmSync(folder, { recursive: true, force: true });
  return { status: result.status, output: result.stdout + result.stderr };
}

describe('the layer rules', () => {
  it('let a sound house pass', () => {
    const { status, output } = breaches({});
    expect({ status, output }).toMatchObject({ status: 0 });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    [
      'a call that goes up',
      'layer:users',
      { 'libs/users/src/up.ts': `import { r } from '@rookery/rooms';\nexport const x = r;\n` },
    ],
    [
      'a call within a layer',
      'layer:platform',
      {
        'libs/platform/src/side.ts': `import { h } from '@rookery/http';\nexport const x = h;\n`,
        'libs/http/src/index.ts': 'export const h = 1;\n',
      },
    ],
    [
      'a cycle',
      'no-cycles',
      {
        'libs/rooms/src/one.ts': `export { two } from './two.js';\n`,
        'libs/rooms/src/two.ts': `import './one.js';\nexport const two = 1;\n`,
      },
    ],
    [
      'a store of rooms that knows what people do',
      'rooms-store-and-decide-below',
      {
        'libs/rooms/src/store/up.ts': `export { sent } from '../sending/sent.js';\n`,
        'libs/rooms/src/sending/sent.ts': 'export const sent = 1;\n',
      },
    ],
    [
      'a service that knows of HTTP',
      'http-on-top',
      {
        'libs/rooms/src/sending/up.ts': `export { answer } from '../http/answer.js';\n`,
        'libs/rooms/src/http/answer.ts': 'export const answer = 1;\n',
      },
    ],
    [
      'a way in beside the front door',
      'front-door-only',
      { 'libs/rooms/src/side.ts': `import { inner } from '../../users/src/inner.js';\nexport const x = inner;\n` },
    ],
    [
      'a framework in the protocol',
      'protocol-is-pure',
      { 'libs/events/src/impure.ts': `import { Injectable } from '@nestjs/common';\nexport const x = Injectable;\n` },
    ],
    [
      'a database driver outside of the database lib',
      'drivers-behind-the-database',
      { 'libs/rooms/src/service.ts': `import pg from 'pg';\nexport const x = pg.Pool;\n` },
    ],
    [
      'an example that sees more than the module API',
      'examples-see-only-the-module-api',
      { 'modules-examples/one/src/more.ts': `import { u } from '@rookery/users';\nexport const x = u;\n` },
    ],
    [
      'test code in the server',
      'testing-is-for-tests',
      { 'apps/homeserver/src/tested.ts': `import { t } from '@rookery/testing';\nexport const x = t;\n` },
    ],
  ])('find %s', (_, rule, files) => {
    const { status, output } = breaches(files);
    expect(output).toContain(rule);
    expect(status).not.toBe(0);
  });
});
