import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of folders says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-folders-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'folders.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const sound = {
  'libs/one/src/index.ts': `export { Above } from './above/above.js';\n`,
  'libs/one/src/hooks.ts': `import type { Word } from './words/word.js';\nexport type Hook = (word: Word) => void;\n`,
  'libs/one/src/words/word.ts': 'export type Word = string;\n',
  'libs/one/src/above/above.ts': `import {\n  type Hook,\n} from '../hooks.js';\nexport type Above = Hook;\n`,
  'libs/one/src/words/word.spec.ts': `import '../above/above.js';\n`,
};

describe('the check of folders', () => {
  it('lets folders pass whose imports go one way, whatever their specs import', () => {
    expect(check(sound)).toEqual({ status: 0, output: '' });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    [
      'folders, for a type only',
      'libs/one: above, hooks.ts, words',
      { 'libs/one/src/words/back.ts': `import type { Above } from '../above/above.js';\nexport type Back = Above;\n` },
    ],
    [
      'a folder and a file beside it',
      'libs/one: hooks.ts, words',
      { 'libs/one/src/words/back.ts': `import { type Hook } from '../hooks.js';\nexport type Back = Hook;\n` },
    ],
    [
      'three folders of an app',
      'apps/two: a, b, c',
      {
        'apps/two/src/a/a.ts': `import '../b/b.js';\n`,
        'apps/two/src/b/b.ts': `export * from '../c/c.js';\n`,
        'apps/two/src/c/c.ts': `export const late = () => import('../a/a.js');\n`,
      },
    ],
  ])('finds a ring of %s', (_, ring, files) => {
    const { status, output } = check({ ...sound, ...files });
    expect(output).toContain(`${ring} import each other in a ring`);
    expect(output).toMatch(/\.ts:1 -> .*\.ts/);
    expect(status).toBe(1);
  });
});
