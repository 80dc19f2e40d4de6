import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of the house says of a project with these files, and what its pages say afterwards. */
function check(
  files: Readonly<Record<string, string>>,
  ...options: string[]
): { status: number | null; output: string; walks: string; architecture: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-house-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'house.mjs'), `--project=${project}`, ...options];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  const page = (name: string): string => readFileSync(join(project, 'docs', name), 'utf8');
  const pages = { walks: page('walks.md'), architecture: page('architecture.md') };
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr, ...pages };
}

const architecture = `### Where a change goes
| task | files |
|---|---|
| a nest | \`libs/rooms/src/nest.ts\`, \`libs/rooms/src/thing.ts\` |

## 10
| measured | before | now | held by |
|---|---:|---:|---|
| providers in the largest Nest module | 76 | 2 | x |
| names that rooms exports | 157 | 2, each used | x |
| names that users exports | 127 | 1, each used | x |
| class names used twice | 9 | 1, with its reason | x |
| files that read another lib's table | many | 1, with a reason | x |
| constructors of more than seven parameters | 64 | 1 | x |
| constructors of more than ten parameters | 13 | 0 | x |
| hand-made queues, turns, maps of promises | 30 | 3 | x |
| caches beside \`Cache\` | 43 | 1 | x |
| timers beside background tasks | many | 0 | x |
| highest complexity on the way of an event | 38 | 15 | x |
`;
const sound = {
  'docs/architecture.md': architecture,
  'docs/walks.md': 'Begin at `libs/rooms/src/nest.ts:3` `build`.\n',
  'docs/glossary.md': 'Twice on purpose: `Nest` (for two birds).\n',
  'tools/kinds.json': '{"raw caches":{"a":""},"promise chains":{"a":""},"maps of promises":{"a":"","b":""}}',
  'tools/tables.json': '{"reads":[{}],"exempt":[]}',
  'eslint.config.mjs': "export default [{ rules: { complexity: ['error', 15] } }];\n",
  'libs/rooms/src/index.ts': "export { a, type B } from './nest.js';\n",
  'libs/rooms/src/nest.ts': 'export class Nest {\n  constructor(a, b, c, d, e, f, g, h) {}\n  build(): void {}\n}\n',
  'libs/rooms/src/nest.module.ts':
    'const more = [A];\n@Module({ providers: [Nest, ...more] })\nexport class NestModule {}\n',
  'libs/users/src/index.ts': "export { c } from './c.js';\n",
};

describe('the check of the house', () => {
  it('lets pass pages that say what is', () => {
    expect(check(sound)).toMatchObject({ status: 0, output: '' });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    [
      'a number that is not true',
      'names that rooms exports: 2 is said, 3 counted',
      { 'libs/rooms/src/index.ts': "export { a, type B, d } from './nest.js';\n" },
    ],
    [
      'an exception that is not counted',
      'timers beside background tasks: 0 is said, 1 counted',
      { 'tools/kinds.json': sound['tools/kinds.json'].replace('"raw caches"', '"timers":{"a":""},"raw caches"') },
    ],
    [
      'a row that is gone',
      'has no row for "class names',
      { 'docs/architecture.md': architecture.replace('class', '') },
    ],
    [
      'a symbol that is gone',
      'libs/rooms/src/nest.ts has no build',
      { 'libs/rooms/src/nest.ts': 'export class Nest {\n  run() {\n    build();\n  }\n}\n' },
    ],
    [
      'a line that is far off',
      'build lies at libs/rooms/src/nest.ts:43',
      { 'libs/rooms/src/nest.ts': `${'\n'.repeat(40)}${sound['libs/rooms/src/nest.ts']}` },
    ],
    [
      'a file of a task that is gone',
      'there is no libs/rooms/src/egg.ts',
      { 'docs/architecture.md': architecture.replace('rooms/src/nest.ts', 'rooms/src/egg.ts') },
    ],
  ])('finds %s', (_, message, files) => {
    const { status, output } = check({ ...sound, ...files });
    expect(output).toContain(message);
    expect(status).toBe(1);
  });

  it('writes numbers and lines anew', () => {
    const written = check(
      {
        ...sound,
        'libs/users/src/index.ts': "export { c, e } from './c.js';\n",
        'docs/walks.md': 'Begin at `libs/rooms/src/nest.ts:99` `build`.\n',
      },
      '--write',
    );
    expect(written).toMatchObject({ status: 0, walks: sound['docs/walks.md'] });
    expect(written.architecture).toBe(architecture.replace('127 | 1, each', '127 | 2, each'));
  });
});
