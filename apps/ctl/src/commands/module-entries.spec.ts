import {
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addModuleEntry, entriesOfPackage, removeModuleEntry } from './module-entries.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-entries-'));
  file = join(folder, 'homeserver.yaml');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const text = (): string => readFileSync(file, 'utf8');
const adding = (before: string, module = '@my/two'): string => {
  writeFileSync(file, before);
  expect(addModuleEntry(file, module)).toBe(true);
  return text();
};
const removing = (before: string, module: string): string => {
  writeFileSync(file, before);
  expect(removeModuleEntry(file, module)).toBe(true);
  return text();
};

/** As people write it: uneven spaces, comments everywhere, quotes of both kinds, several styles. */
const head = `# top
server_name:   example.org # name

x-base: &base { port: 8008,  type: http }
listeners:
- {<<: *base, tls: no}   # first


modules:
# about one
-   module: ./one.mjs    # end of line
    config:   # settings
      words: ["a b", 'c', "${'long '.repeat(40)}"]
      text: |
        keep
          this
`;
const tail = `  # behind the list

# database
database: {name: sqlite3, args: {database: 'x.db'}}
# the end`;

describe('addModuleEntry', () => {
  it('adds one line behind the last entry; every other character stays', () => {
    expect(adding(head + tail)).toBe(`${head}- module: "@my/two"\n${tail}`);
    expect(addModuleEntry(file, '@my/two')).toBe(false);
    expect(addModuleEntry(file, './one.mjs')).toBe(false);
  });

  it.each([
    ['a: 1', 'a: 1\nmodules:\n  - module: two\n'],
    ['', 'modules:\n  - module: two\n'],
    ['modules:\n', 'modules:\n  - module: two\n'],
    ['modules: [ ] # none\na: 1\n', 'modules: # none\n  - module: two\na: 1\n'],
    ['modules: ~\n\na: 1\n', 'modules:\n  - module: two\n\na: 1\n'],
    ['modules: # none\n  # - module: x\na: 1\n', 'modules: # none\n  - module: two\n  # - module: x\na: 1\n'],
    ['modules:\n  - module: one', 'modules:\n  - module: one\n  - module: two\n'],
    ['modules:\r\n- module: one\r\na: 1\r\n', 'modules:\r\n- module: one\r\n- module: two\r\na: 1\r\n'],
    ['modules: [{module: one}]\n', 'modules: [{module: one}, { module: "two" }]\n'],
    ['modules: [\n  {module: one},\n]\n', 'modules: [\n  {module: one}, { module: "two" },\n]\n'],
    ['modules: &m\n  - &x # a-b\n    module: one\nb: *m\n', undefined],
  ])('knows how lists are written: %j', (before, after) => {
    if (after !== undefined) expect(adding(before, 'two')).toBe(after);
    else {
      // The list is used elsewhere, too: what else would change is for people to decide.
      writeFileSync(file, before);
      expect(() => addModuleEntry(file, 'two')).toThrow(/only you can change: see to two under modules there/);
      expect(text()).toBe(before);
    }
  });
});

describe('removeModuleEntry', () => {
  it('undoes addModuleEntry to the character', () => {
    adding(head + tail);
    expect(removeModuleEntry(file, '@my/two')).toBe(true);
    expect(text()).toBe(head + tail);
    expect(removeModuleEntry(file, '@my/two')).toBe(false);
    adding('a: 1\n', 'two');
    removeModuleEntry(file, 'two');
    expect(text()).toBe('a: 1\n');
  });

  it.each([
    [
      'modules:\n  # both\n  - module: one\n    config: {a: 1}\n  # more\n  - module: two\n',
      'one',
      'modules:\n  # both\n  # more\n  - module: two\n',
    ],
    ['modules:\n  # note\n  - module: one\na: 1\n', 'one', 'modules: []\n  # note\na: 1\n'],
    ['modules: # note\n- module: one\na: 1\n', 'one', 'modules: [] # note\na: 1\n'],
    ['modules: [{module: one}, {module: two}]\n', 'one', 'modules: [{module: two}]\n'],
    ['modules: [{module: one}, {module: two}]\n', 'two', 'modules: [{module: one}]\n'],
    ['modules: [{module: one}]\n', 'one', 'modules: []\n'],
    ['modules:\n- module: one\n- module: one\n', 'one', 'modules:\n- module: one\n'],
  ])('takes out the entry and nothing else: %j %s', (before, module, after) => {
    expect(removing(before, module)).toBe(after);
  });

  it('leaves an entry that others refer to', () => {
    const before = 'modules:\n- module: one\n  config: &c {a: 1}\n- module: two\n  config: *c\n';
    writeFileSync(file, before);
    expect(() => removeModuleEntry(file, 'one')).toThrow(/only you can change: see to one under modules/);
    expect(text()).toBe(before);
    expect(removeModuleEntry(file, 'two')).toBe(true);
  });
});

it('sees entries through aliases and merges, and parts of a package as the package', () => {
  writeFileSync(
    file,
    'x: &x {module: "pkg#one"}\nmodules:\n- *x\n- <<: *x\n  module: pkg/part\n- module: pkg2\n- module: ./pkg\n',
  );
  expect(entriesOfPackage(file, 'pkg')).toEqual(['pkg#one', 'pkg/part']);
  expect(addModuleEntry(file, 'pkg#one')).toBe(false);
});

it('changes the last of two lists, which is the one that holds', () => {
  const before = 'a: 1\na: 2\nmodules:\n- module: one\nmodules:\n- module: two\n';
  expect(adding(before, 'one')).toBe(`${before}- module: one\n`);
  expect(removing(`${before}- module: one\n`, 'two')).toBe(before.replace('two', 'one'));
  // Without the key the first list would hold.
  expect(() => removing(before, 'two')).toThrow(/only you can change/);
});

it('refuses what is no settings file, in a line', () => {
  writeFileSync(file, 'modules: yes\n');
  expect(() => addModuleEntry(file, 'one')).toThrow(/modules is not a list/);
  writeFileSync(file, 'a: [\n');
  expect(() => addModuleEntry(file, 'one')).toThrow(/is not YAML/);
  expect(() => addModuleEntry(folder, 'one')).toThrow(/cannot be read: it is a folder/);
  expect(() => addModuleEntry(join(folder, 'gone.yaml'), 'one')).toThrow(/cannot be read: there is no such file/);
});

it('keeps owner, permissions and links, and leaves nothing behind', () => {
  mkdirSync(join(folder, 'real'));
  const real = join(folder, 'real/server.yaml');
  writeFileSync(real, 'a: 1\n', { mode: 0o640 });
  // Only the system's administrator can give files away.
  const owner = process.getuid?.() === 0 ? 1234 : statSync(real).uid;
  chownSync(real, owner, statSync(real).gid);
  symlinkSync(real, file);
  addModuleEntry(file, 'one');
  expect(lstatSync(file).isSymbolicLink()).toBe(true);
  expect(readFileSync(real, 'utf8')).toContain('- module: one');
  expect([statSync(real).mode & 0o777, statSync(real).uid]).toEqual([0o640, owner]);
  expect(readdirSync(join(folder, 'real'))).toEqual(['server.yaml']);
});
