import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of Nest modules and constructors says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-nest-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'nest.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const names = (count: number): string => Array.from({ length: count }, (_, i) => `A${i}`).join(', ');
const parameters = (count: number): string => Array.from({ length: count }, (_, i) => `a${i}: string`).join(', ');
const moduleOf = (count: number): string =>
  `const rest = [${names(count - 1)}];\n@Module({ providers: [...rest, B], exports: rest })\nexport class M {}\n`;
const serviceOf = (count: number, above = ''): string =>
  `export class Service {\n${above}  constructor(${parameters(count)}) {}\n}\n`;

describe('the check of Nest modules and constructors', () => {
  it('lets modules of fifteen providers, constructors of seven parameters, and longer ones with a reason pass', () => {
    const files = {
      'libs/one/src/one.module.ts': moduleOf(15),
      'libs/one/src/a.service.ts': serviceOf(7),
      'libs/one/src/b.service.ts': serviceOf(
        9,
        '  // Nine parameters: one for each of the planets,\n  // as was once taught.\n',
      ),
    };
    expect(check(files)).toEqual({ status: 0, output: '' });
  });

  it('lets an app, and what hands services to tests, ask the container', () => {
    const text = 'function f(nest: INestApplication) {\n  return nest.get(Service);\n}\n';
    const files = { 'apps/one/src/a.ts': text, 'libs/testing/src/a.ts': text, 'libs/one/src/m.ts': 'map.get(key);\n' };
    expect(check(files)).toEqual({ status: 0, output: '' });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    ['a module of sixteen providers', 'a Nest module of 16 providers', { 'libs/one/src/m.ts': moduleOf(16) }],
    ['a constructor of eight parameters', 'has 8 parameters, 7 at most', { 'libs/one/src/s.ts': serviceOf(8) }],
    [
      'one whose reason tells another number',
      'has 9 parameters, 7 at most without a reason above it: // Nine parameters: ...',
      { 'libs/one/src/s.ts': serviceOf(9, '  // Eight parameters: one for each of the planets.\n') },
    ],
    [
      'one whose reason is none',
      'without a reason above it: // Nine parameters: ...',
      { 'libs/one/src/s.ts': serviceOf(9, '  // Nine parameters: all needed.\n') },
    ],
    [
      'a reason that does not lie above it',
      'without a reason above it',
      { 'libs/one/src/s.ts': `// Nine parameters: one for each of the planets.\n${serviceOf(9)}` },
    ],
    [
      'more of them than there were',
      '49 constructors have more than 7 parameters; 48 at most',
      { 'libs/one/src/s.ts': serviceOf(8, '  // Eight parameters: one for each of the planets.\n').repeat(49) },
    ],
    [
      'a ModuleRef in a lib',
      'ModuleRef outside of the apps',
      { 'libs/one/src/s.ts': "import { ModuleRef } from '@nestjs/core';\n" },
    ],
    [
      'a service that a lib asks of the container',
      'libs/one/src/s.ts:2: a service is asked of the container by hand',
      { 'libs/one/src/s.ts': 'async function f(nest: INestApplication) {\n  return nest.get(Service);\n}\n' },
    ],
    [
      'one that a lib asks of an application it made',
      'a service is asked of the container by hand',
      { 'libs/one/src/s.ts': 'const nest = await NestFactory.create(Root);\nconst one = nest.get(Service);\n' },
    ],
  ])('finds %s', (_, message, files) => {
    const { status, output } = check(files);
    expect(output).toContain(message);
    expect(status).toBe(1);
  });
});
