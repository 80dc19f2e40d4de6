import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of exports says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-exports-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'exports.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const sound = {
  'libs/one/package.json': '{"name":"@rookery/one","private":true}',
  'libs/one/src/index.ts': `export { a, limits as oneLimits } from './a.js';\nexport { type Tool } from './tool.js';\n`,
  'libs/two/package.json': '{"name":"@rookery/two","private":true}',
  'libs/two/src/index.ts': `export { b } from './b.js';\n`,
  'libs/two/src/b.ts': `import { a, oneLimits as limits } from '@rookery/one';\nexport const b = [a, limits];\n`,
  'test/two.spec.ts': `import {\n  b,\n} from '@rookery/two';\nb;\n`,
  'tools/page.mjs': `const { Tool } = await import(\n  join(root, 'libs', 'one', 'src', 'index.ts')\n);\n`,
};

describe('the check of exports', () => {
  it('lets pass what libs, tests and tools use', () => {
    expect(check(sound)).toEqual({ status: 0, output: '' });
  });

  it('finds what only the lib itself uses', () => {
    const { status, output } = check({
      ...sound,
      'libs/one/src/index.ts': `export { a, limits as oneLimits, type Inner } from './a.js';\nexport { Tool } from './tool.js';\n`,
      'libs/one/src/inner.spec.ts': `import { Inner } from '@rookery/one';\nInner;\n`,
    });
    expect(output).toBe('libs/one exports what nobody else uses: Inner\n');
    expect(status).toBe(1);
  });

  it('takes what is imported late by what is taken of it', () => {
    const late = (clause: string): Record<string, string> => ({
      ...sound,
      'libs/two/src/b.ts': `export const b = async () => {\n  ${clause} await import('@rookery/one');\n};\n`,
    });
    expect(check(late('const { a, oneLimits: limits } ='))).toEqual({ status: 0, output: '' });
    expect(check(late('const { a } =')).output).toBe('libs/one exports what nobody else uses: oneLimits\n');
    expect(check(late('const all =')).status).toBe(0);
  });

  it('leaves published libs alone', () => {
    expect(check({ ...sound, 'libs/two/package.json': '{"name":"@rookery/two"}', 'test/two.spec.ts': '' }).status).toBe(
      0,
    );
  });
});
