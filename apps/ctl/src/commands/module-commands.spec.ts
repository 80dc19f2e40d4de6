import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Command } from 'commander';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { registerModuleCommands } from './module-commands.js';
import { addModuleEntry, removeModuleEntry } from './module-entries.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-module-'));
  file = join(folder, 'homeserver.yaml');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (path: string, content: string): void => {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), content);
};
const settings = (modules: string): void =>
  write('homeserver.yaml', `# mine\nserver_name: example.org\nreport_stats: false\n${modules}`);

const source = (name: string, body: string, config = 'undefined'): string => `
  import { defineModule } from '@rookery/module-api';
  export default defineModule({ name: '${name}', parseConfig: (raw) => ${config}, register(api) { ${body} } });`;
const joins = 'api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => "NOT_SPAM" });';

async function rookery(...args: string[]): Promise<{ code: number; out: string; notes: string }> {
  const out: string[] = [];
  const notes: string[] = [];
  const unasked = async (): Promise<string> => {
    throw new CommandError('nobody to ask');
  };
  const terminal: Terminal = {
    out: (line) => void out.push(line),
    note: (line) => void notes.push(line),
    ask: unasked,
    askSecret: unasked,
  };
  const program = new Command('rookery').exitOverride();
  registerModuleCommands(program, terminal);
  let code = 0;
  try {
    await program.parseAsync(['module', ...args], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    code = error.exitCode;
    notes.push(error.message);
  }
  return { code, out: out.join('\n'), notes: notes.join('\n') };
}

describe('module check', () => {
  it('shows what each module registers', async () => {
    write(
      'good.mjs',
      source('good', `${joins} api.registerWebResource('/_synapse/client/good', () => new Response());`),
    );
    settings('modules:\n  - module: ./good.mjs\n');
    const { code, out } = await rookery('check', '-c', file);
    expect(code).toBe(0);
    expect(out).toContain('ok     good (./good.mjs)');
    expect(out).toContain('callbacks: userMayJoinRoom');
    expect(out).toContain('paths: /_synapse/client/good');
  });

  it('finds every problem in one go, with file and line', async () => {
    write('good.mjs', source('good', joins));
    write('twice.mjs', source('good', joins));
    write('failing.mjs', source('failing', 'throw new Error("no luck")'));
    write('strict.mjs', source('strict', '', 'raw.words.length'));
    settings(
      [
        'modules:',
        '- module: ./good.mjs',
        '- module: missing',
        '- module: ./failing.mjs',
        '- module: ./twice.mjs',
        '- module: ./strict.mjs',
        '',
      ].join('\n'),
    );
    const { code, out, notes } = await rookery('check', '-c', file);
    expect(code).toBe(1);
    expect(notes).toContain('The server would not start with these modules.');
    expect(out).toContain('ok     good (./good.mjs)');
    expect(out).toMatch(/FAILED missing\n.*homeserver\.yaml:6: .*rookery module add missing/);
    expect(out).toMatch(/FAILED failing \(\.\/failing\.mjs\)\n.*homeserver\.yaml:7: .*register\(\) failed: no luck/);
    expect(out).toMatch(/FAILED good \(\.\/twice\.mjs\)\n.*Two modules are called good/);
    expect(out).toMatch(/FAILED \.\/strict\.mjs\n.*homeserver\.yaml:9: .*parseConfig\(\) failed/);
  });

  it('shows warnings, and nothing when there is no module', async () => {
    write('old.mjs', source('old', 'api.registerThirdPartyRulesCallbacks({ onThreepidBind() {} });'));
    settings('modules:\n  - module: ./old.mjs\n');
    expect((await rookery('list', '-c', file)).out).toContain('warning: onThreepidBind is deprecated');
    settings('');
    expect((await rookery('check', '-c', file)).out).toBe('The settings list no module.');
  });
});

describe('module add', () => {
  // The tests' own loader is not for npm.
  const nodeOptions = process.env.NODE_OPTIONS;
  beforeAll(() => void delete process.env.NODE_OPTIONS);
  afterAll(() => void (nodeOptions === undefined || (process.env.NODE_OPTIONS = nodeOptions)));

  it('installs beside the settings, lists the module, and says whether it loads; remove undoes it', async () => {
    write(
      'package/package.json',
      JSON.stringify({ name: 'my-module', version: '1.0.0', type: 'module', exports: './x.js' }),
    );
    write('package/x.js', source('mine', joins));
    settings('# the end\n');
    const added = await rookery('add', join(folder, 'package'), '-c', file);
    expect(added.notes).toContain('now lists my-module');
    expect(added.out).toContain('ok     mine (my-module)');
    expect(added.code).toBe(0);
    expect(readFileSync(file, 'utf8')).toContain('modules:\n  - module: my-module\n');
    expect((await rookery('add', join(folder, 'package'), '-c', file)).notes).toContain('lists my-module already');

    const removed = await rookery('remove', 'my-module', '-c', file);
    expect(removed.code).toBe(0);
    expect(readFileSync(file, 'utf8')).not.toContain('my-module');
    expect(readFileSync(join(folder, 'modules/package.json'), 'utf8')).not.toContain('my-module');
    expect((await rookery('remove', 'my-module', '-c', file)).code).toBe(1);
  });

  it('leaves the entry for the operator to fill in when the module needs settings', async () => {
    write(
      'package/package.json',
      JSON.stringify({ name: 'strict', version: '1.0.0', type: 'module', exports: './x.js' }),
    );
    write('package/x.js', source('strict', '', 'raw.words.length'));
    settings('');
    const { code, notes, out } = await rookery('add', join(folder, 'package'), '-c', file);
    expect(code).toBe(1);
    expect(out).toContain('FAILED strict');
    expect(notes).toContain('is installed, but does not load yet');
    expect(readFileSync(file, 'utf8')).toContain('- module: strict');
  });

  it('needs a settings file, and takes no option for a package', async () => {
    expect(await rookery('add', 'x', '-c', join(folder, 'none.yaml'))).toMatchObject({ code: 1 });
    settings('');
    expect(await rookery('add', '-c', file, '--', '--force')).toMatchObject({ code: 2 });
  });
});

describe('the entries of a settings file', () => {
  it('come and go, and everything else stays', () => {
    const before =
      '# top\nserver_name: example.org # name\n\nmodules:\n  # first\n  - module: one\n    config:\n      words: [a, b]\nlisteners: []\n';
    writeFileSync(file, before, { mode: 0o600 });
    expect(addModuleEntry(file, 'one')).toBe(false);
    expect(addModuleEntry(file, 'two')).toBe(true);
    expect(readFileSync(file, 'utf8')).toContain('      words: [ a, b ]\n  - module: two\nlisteners: []');
    expect(readFileSync(file, 'utf8')).toMatch(/# top\nserver_name: example\.org # name\n/);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(removeModuleEntry(file, 'two')).toBe(true);
    expect(removeModuleEntry(file, 'three')).toBe(false);
    expect(removeModuleEntry(file, 'one')).toBe(true);
    expect(readFileSync(file, 'utf8')).toBe('# top\nserver_name: example.org # name\nlisteners: []\n');
  });

  it('refuse a file that is something else', () => {
    writeFileSync(file, 'modules: yes\n');
    expect(() => addModuleEntry(file, 'one')).toThrow(/modules is not a list/);
    writeFileSync(file, 'a: [\n');
    expect(() => addModuleEntry(file, 'one')).toThrow(/is not YAML/);
  });
});
