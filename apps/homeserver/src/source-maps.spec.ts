import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'rookery-maps-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** What a program prints that shows the error of a compiled file; its third line was the seventh of the source. */
function stackOf(map: string | undefined, error = "new Error('wrong')"): string {
  writeFileSync(join(folder, 'thrower.mjs'), `export function thrower() {\n\n  throw ${error};\n}\n`);
  if (map !== undefined) writeFileSync(join(folder, 'thrower.mjs.map'), map);
  const [module, thrower] = [
    new URL('source-maps.ts', import.meta.url).href,
    pathToFileURL(join(folder, 'thrower.mjs')).href,
  ];
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--input-type=module',
      '-e',
      `const { mapStacks } = await import(${JSON.stringify(module)});
       mapStacks();
       const { thrower } = await import(${JSON.stringify(thrower)});
       try { thrower(); } catch (error) { console.log(error.stack); }`,
    ],
    // Without the options of the tests, which map all that they load.
    { encoding: 'utf8', env: {} },
  );
  if (stdout === '') throw new Error(stderr);
  return stdout;
}

// What begins line 3 of the compiled file begins at line 7, column 5 of the source; the error is eight columns further on.
const map = JSON.stringify({ version: 3, sources: ['../src/thrower.ts'], names: [], mappings: ';;AAMI' });

describe('stacks', () => {
  it('name the place in the source, where the compiled file has a map', () => {
    const [first, second] = stackOf(map).split('\n');
    expect(first).toBe('Error: wrong');
    expect(second).toMatch(/^ {4}at thrower \(.*[/\\]src[/\\]thrower\.ts:7:13\)$/);
  });

  it('name the place by the last piece before it in the same line, whatever else the map has', () => {
    // A line of another source, then pieces at the columns 0 (of no source), 2 and 8 (31 lines further up).
    const many = { version: 3, sources: ['../src/other.ts', '../src/thrower.ts'], names: ['a'] };
    expect(stackOf(JSON.stringify({ ...many, mappings: 'AAAA;AA+/BA,C;A,ECAA,MA/BAA;AAAA' }))).toMatch(
      /src[/\\]thrower\.ts:993:1\)/,
    );
    expect(stackOf(JSON.stringify({ ...many, mappings: 'AAAA;;A;ACAA' }))).toMatch(/thrower\.mjs:3:9\)/);
  });

  it.each([
    ['no map', undefined],
    ['a map that is none', 'no map'],
    ['a map of sources that are no files', map.replace('../src', 'webpack://package/src')],
  ])('name the place in the compiled file, where it has %s', (_, given) => {
    const [first, second] = stackOf(given).split('\n');
    expect(first).toBe('Error: wrong');
    expect(second).toMatch(/^ {4}at thrower \(file:.*\/thrower\.mjs:3:9\)$/);
  });

  it('survive what says nothing of itself', () => {
    const odd = "Object.assign(new Error(), { toString: undefined, get message() { throw new Error('no'); } })";
    expect(stackOf(map, odd)).toContain('thrower.ts');
  });
});
