import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { changedFile, codeOf } from './code-files.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-code-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (path: string, text = ''): string => {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
};
const urlOf = (path: string): string => pathToFileURL(join(folder, path)).href;

it('follows all code of a module’s package, and nothing that it uses', () => {
  for (const path of ['p/package.json', 'p/dist/index.js', 'p/dist/other.js', 'p/readme.md', 'p/node_modules/x/x.js'])
    write(path);
  const url = urlOf('p/dist/index.js');
  const before = codeOf(url);
  write('p/readme.md', 'changed');
  write('p/node_modules/x/x.js', 'changed');
  expect(changedFile(before, codeOf(url))).toBeUndefined();
  const other = write('p/dist/other.js', 'changed');
  expect(changedFile(before, codeOf(url))).toBe(other);
});

it('knows code that was copied with its times, which are not kept to the last digit', () => {
  const file = write('lone.mjs');
  const seconds = 1_795_828_470.947_993;
  const codeAt = (time: number): ReturnType<typeof codeOf> => {
    utimesSync(file, time, time);
    return codeOf(urlOf('lone.mjs'));
  };
  expect(changedFile(codeAt(seconds), codeAt(seconds + 0.000_000_5))).toBeUndefined();
  expect(changedFile(codeAt(seconds), codeAt(seconds + 0.002))).toBe(file);
});

it('takes the folder of the settings for no module, though it has a package.json', () => {
  for (const path of ['package.json', 'homeserver.yaml', 'deep/mine.mjs', 'tool.js']) write(path);
  const url = urlOf('deep/mine.mjs');
  const before = codeOf(url);
  write('tool.js', 'changed');
  write('new.js');
  expect(changedFile(before, codeOf(url))).toBeUndefined();
  const mine = write('deep/mine.mjs', 'changed');
  expect(changedFile(before, codeOf(url))).toBe(mine);
});
