import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of names says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-names-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'names.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const glossary = (twice = ''): string => `# Words

## Words that are not used

| not | but | except in |
|---|---|---|
| \`heads\`, \`tails\` | forward extremities | \`exposeHeads\`: a library's |
${twice}`;
const sound = {
  'docs/glossary.md': glossary(),
  'libs/one/src/a.ts': 'export class Ahead {\n  exposeHeads = true;\n}\n',
  'libs/two/src/b.ts': `// Heads of birds.\nexport class Other {\n  #header = 'heads';\n}\n`,
};

describe('the check of names', () => {
  it('lets names pass that have no such word in them, but for those that may', () => {
    expect(check(sound)).toEqual({ status: 0, output: '' });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    [
      'a word in an identifier',
      'libs/one/src/c.ts:1: maxHeads says heads; the field says: forward extremities',
      { 'libs/one/src/c.ts': 'export const maxHeads = 1;\n' },
    ],
    ['a word in a private name', '#tails says tails', { 'libs/one/src/c.ts': 'export class C {\n  #tails = 1;\n}\n' }],
    [
      'a class name that two libs have',
      'The class name Other is used twice: libs/one/src/c.ts:1, libs/two/src/b.ts:2',
      { 'libs/one/src/c.ts': 'export class Other {}\n' },
    ],
    [
      'a name that is allowed twice for nothing',
      'the class name Other is not used twice any more',
      { 'docs/glossary.md': glossary('\nTwice on purpose: `Other` (a reason).\n') },
    ],
  ])('finds %s', (_, message, files) => {
    const { status, output } = check({ ...sound, ...files });
    expect(output).toContain(message);
    expect(status).toBe(1);
  });
});
