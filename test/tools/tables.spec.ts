import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of tables says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-tables-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'tables.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const list = (reads: object[]): Record<string, string> => ({ 'tools/tables.json': JSON.stringify({ reads }) });

const sound = {
  'libs/one/src/migrations/index.ts': `export const up = ['CREATE TABLE birds (name TEXT)', 'CREATE TABLE nests (id TEXT)'];\n`,
  'libs/one/src/birds.query.ts': `export const add = 'INSERT INTO birds (name) VALUES (?)';\n`,
  'libs/two/src/migrations/index.ts': `export const up = 'CREATE TABLE IF NOT EXISTS eggs (id TEXT)';\n`,
  'libs/two/src/eggs.query.ts': `export const all = 'SELECT id FROM eggs';\n`,
};
const join2 = { 'libs/two/src/both.query.ts': "export const both = `SELECT 1 FROM eggs e JOIN birds b ON ${'x'}`;\n" };
const reason = { file: 'libs/two/src/both.query.ts', tables: ['birds'], why: 'one statement' };

describe('the check of tables', () => {
  it('lets libs read and write what they create, and read what is listed', () => {
    expect(check({ ...sound, ...join2, ...list([reason]) })).toEqual({ status: 0, output: '' });
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    [
      'a write of another lib',
      'libs/two/src/steal.query.ts:1 writes birds, which belongs to libs/one',
      { 'libs/two/src/steal.query.ts': `export const steal = 'DELETE FROM birds';\n` },
    ],
    [
      'many rows for the table of another lib',
      'writes birds',
      { 'libs/two/src/steal.query.ts': `export const steal = (tx: any) => tx.insertMany('birds', [], []);\n` },
    ],
    [
      'a write to a table of a list of names',
      'writes nests',
      {
        'libs/two/src/steal.query.ts':
          "export function steal(run: any) {\n  for (const table of ['eggs', 'nests']) run(`DELETE FROM ${table}`);\n}\n",
      },
    ],
    ['a join without a reason', 'libs/two/src/both.query.ts reads birds of others', join2],
    ['a reason for nothing', 'does not read birds any more', list([{ ...reason, file: 'libs/two/src/eggs.query.ts' }])],
    ['an entry without a reason', 'says no reason', { ...join2, ...list([{ ...reason, why: '' }]) }],
    [
      'a statement elsewhere than in a query file',
      'libs/one/src/birds.service.ts:1 has statements',
      { 'libs/one/src/birds.service.ts': `export const count = 'SELECT COUNT(*) FROM birds';\n` },
    ],
    [
      'a statement that is asked of no table, elsewhere than in a query file',
      'libs/one/src/birds.service.ts:1 has statements',
      { 'libs/one/src/birds.service.ts': `export const version = 'SELECT version()';\n` },
    ],
    [
      'two creators of one table',
      'the table birds is created by libs/one, too',
      { 'libs/two/src/migrations/more.ts': `export const up = 'CREATE TABLE birds (name TEXT)';\n` },
    ],
  ])('finds %s', (_, message, files) => {
    const { status, output } = check({ ...sound, ...files });
    expect(output).toContain(message);
    expect(status).toBe(1);
  });
});
