import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Ajv2020 as Ajv } from 'ajv/dist/2020.js';
import { Command } from 'commander';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { registerModuleCommands } from './module-commands.js';
import { schemaWithModules } from './module-schema.js';
import { assertWritable } from '../replace-file.js';

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
/** The manifest of a package whose code lies in `package/x.js`. */
const writePackage = (name: string, version: string, more: object = {}): void =>
  write('package/package.json', JSON.stringify({ name, version, type: 'module', exports: './x.js', ...more }));
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

describe('module settings', () => {
  const words = `{ type: 'object', required: ['words'], properties: {
    words: { type: 'array', items: { $ref: '#/$defs/word' }, description: 'What nobody may say' },
    log: { type: 'object', properties: { level: { enum: ['a', 'b'], default: 'a' } } },
    limit: { anyOf: [{ type: 'integer', minimum: 1 }, { type: 'null' }], maximum: 9007199254740991 } },
    $defs: { word: { type: 'string' } } }`;
  const described = `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'words', parseConfig() { throw new Error('not asked'); }, configJsonSchema: ${words},
      register() {} });`;

  it('says what a module takes, in words and as JSON Schema', async () => {
    write('words.mjs', described);
    write('silent.mjs', source('silent', ''));
    settings('modules:\n  - module: ./words.mjs\n  - module: ./silent.mjs\n');
    expect(await rookery('settings', './words.mjs', '-c', file)).toEqual({
      code: 0,
      notes: '',
      out: [
        '| setting | what | default |  |',
        '| --- | --- | --- | --- |',
        '| `words` | list of any | needed | What nobody may say |',
        '| `log` | object |  |  |',
        '| `log.level` | "a" or "b" | `"a"` |  |',
        '| `limit` | integer or null |  |  |',
      ].join('\n'),
    });
    const { out } = await rookery('settings', './words.mjs', '--json', '-c', file);
    expect(JSON.parse(out)).toMatchObject({ properties: { log: { type: 'object' } } });
    expect(await rookery('settings', './silent.mjs', '-c', file)).toMatchObject({
      code: 1,
      notes: expect.stringContaining('README'),
    });
    expect(await rookery('settings', './none.mjs', '-c', file)).toMatchObject({
      code: 1,
      notes: expect.stringContaining('list no module'),
    });
  });

  it('goes into the schema of the settings, for editors', async () => {
    write('words.mjs', described);
    settings('modules:\n  - module: ./words.mjs\n  - module: ./missing.mjs\n');
    const schema = await schemaWithModules([file]);
    const validate = new Ajv({ strict: false, logger: false }).compile(schema);
    const judge = (config: object): boolean =>
      validate({ server_name: 'a', report_stats: false, modules: [{ module: './words.mjs', config }] });
    expect(judge({ words: ['a'], log: { level: 'b' } })).toBe(true);
    expect(judge({ words: [1] })).toBe(false);
    expect(judge({ log: {} })).toBe(false);
    expect(validate({ server_name: 'a', report_stats: false, modules: [{ module: './missing.mjs', config: 7 }] })).toBe(
      true,
    );
  });
});

describe('module check', () => {
  it.each([
    [
      'a template that is nowhere',
      `await api.readTemplates(['nowhere.html'], import.meta.dirname);`,
      'There is no template nowhere.html',
    ],
    [
      'a table of another name',
      `await api.migrate([{ name: '1', sql: ['CREATE TABLE mine (x INTEGER)'] }]);`,
      'the name of mine has to begin with module_bad_',
    ],
  ])('fails, as the server would, for %s', async (_, body, said) => {
    write('bad.mjs', source('bad', body).replace('register(', 'async register('));
    settings('modules: [{ module: ./bad.mjs }]\n');
    const { code, out } = await rookery('check', '-c', file);
    expect(out).toContain('FAILED');
    expect(out).toContain(said);
    expect(code).toBe(1);
  });

  it('reads templates where a server would, and takes a module that finds its own', async () => {
    write('templates/mine.html', 'Hello {{ name }}');
    write(
      'good.mjs',
      source('good', `await api.readTemplates(['mine.html'], ${JSON.stringify(join(folder, 'templates'))});`).replace(
        'register(',
        'async register(',
      ),
    );
    settings('modules: [{ module: ./good.mjs }]\n');
    expect(await rookery('check', '-c', file)).toMatchObject({
      code: 0,
      out: expect.not.stringContaining('not tried') as string,
    });
  });

  it.each(['', ', isolate: thread'])(
    'fails where other settings want what no module provides, or cannot be made%s',
    async (how) => {
      write(
        'tape.mjs',
        source(
          'tape',
          `api.registerMediaStorageProvider('tape', (config) => { if (!config) throw new Error('no config'); return {}; });
        api.registerMediaStorageProvider('vault', (_, server) => { throw new Error(server.maxUploadBytes + ' is too much for ' + server.serverName); });
        api.registerMediaStorageProvider('hole', () => ({}));`,
        ),
      );
      const check = async (name: string): Promise<{ code: number; out: string }> => {
        settings(
          `modules: [{ module: ./tape.mjs${how} }]\nmedia_storage_providers: [{ module: ${name}, store_local: true }]\n`,
        );
        return rookery('check', '-c', file);
      };
      for (const [name, said] of [
        ['disk', 'no module provides a media storage of this name'],
        ['tape', 'no config'],
        ['vault', '52428800 is too much for example.org'],
        ['hole', 'what the module made is no storage provider'],
      ] as const) {
        const { code, out } = await check(name);
        expect(out).toContain(`homeserver.yaml:5: media storage ${name}: ${said}`);
        expect(code).toBe(1);
      }
    },
  );

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

  const oidc = (mapping: string): string =>
    [
      'public_baseurl: https://example.org/',
      'oidc_providers:',
      '- { idp_id: a, idp_name: A, issuer: "https://a.example.org/", client_id: c, client_secret: s, scopes: [openid],',
      '    discover: false, authorization_endpoint: "https://a.example.org/a", token_endpoint: "https://a.example.org/t",',
      `    jwks_uri: "https://a.example.org/j", user_mapping_provider: { module: ${mapping}, config: {} } }`,
      '',
    ].join('\n');

  it.each([
    [
      'a media storage that none provides',
      'media_storage_providers:\n- module: tape\n',
      /yaml:\d+: media storage tape: no/,
    ],
    ['a mapping that none provides', oidc('people'), /yaml:\d+: OpenID Connect mapping people: no module provides/],
    ['templates that are not there', 'templates: { custom_template_directory: ./nowhere }\n', /nowhere/],
  ])('says what ends a start although the modules load: %s', async (_, lines, said) => {
    write('good.mjs', source('good', joins));
    settings(`modules:\n- module: ./good.mjs\n${lines}`);
    const { code, out, notes } = await rookery('check', '-c', file);
    expect(out).toMatch(/^ok {5}good/);
    expect(out.split('\n').filter((line) => line.startsWith('FAILED'))).toEqual([expect.stringMatching(said)]);
    expect([code, notes]).toEqual([1, expect.stringContaining('would not start')]);
  });

  it('does not warn of a start that only cannot be tried without a server', async () => {
    write('asks.mjs', source('asks', `return api.isUserAdmin('@a:example.org').then(() => { ${joins} });`));
    write('last.mjs', source('last', joins));
    settings('modules:\n  - module: ./asks.mjs\n  - module: ./last.mjs\n');
    const { code, out } = await rookery('check', '-c', file);
    expect(out).toContain('warning: not tried to the end: isUserAdmin needs a running server');
    expect(out).toMatch(/ok {5}last/);
    expect(code).toBe(0);
  });

  it('ends, with all that it has to say, though a module left a timer behind', () => {
    write('timer.mjs', `setInterval(() => {}, 1000); ${source('timer', joins)}`);
    settings('modules:\n  - module: ./timer.mjs\n');
    const main = join(import.meta.dirname, '../../dist/main.js');
    const options = { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '' }, timeout: 200_000 } as const;
    const { status, stdout } = spawnSync(process.execPath, [main, 'module', 'check', '-c', file], options);
    expect([status, stdout]).toEqual([0, expect.stringMatching(/^ok {5}timer[^]*callbacks: userMayJoinRoom\n$/)]);
  });

  it('goes on though a timer of a module throws', () => {
    write('timer.mjs', `setInterval(() => { throw new Error('late'); }, 1); ${source('timer', joins)}`);
    settings('modules:\n  - module: ./timer.mjs\n');
    const main = join(import.meta.dirname, '../../dist/main.js');
    const options = { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '' }, timeout: 200_000 } as const;
    const { status, stdout, stderr } = spawnSync(process.execPath, [main, 'module', 'check', '-c', file], options);
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toContain('A module threw where nobody could catch it: late');
  });

  it('waits for what a module in a thread does at its end', () => {
    const end = `api.onStop(() => new Promise((done) => setTimeout(done, 300)));`;
    write('flushing.mjs', source('flushing', `${joins} ${end}`));
    settings('modules:\n  - module: ./flushing.mjs\n    isolate: thread\n');
    const main = join(import.meta.dirname, '../../dist/main.js');
    const options = { encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '' }, timeout: 200_000 } as const;
    const { status, stdout } = spawnSync(process.execPath, [main, 'module', 'check', '-c', file], options);
    expect([status, stdout]).toEqual([0, expect.stringMatching(/^ok {5}flushing[^]*callbacks: userMayJoinRoom\n$/)]);
  });

  it('says what a module lets escape, and which of its options do nothing', async () => {
    settings('modules:\n  - module: ./late.mjs\n    memory_limit: 64M\n');
    write('late.mjs', source('late', 'void api.migrate([{}]);'));
    const { code, out } = await rookery('check', '-c', file);
    expect(code).toBe(0);
    expect(out.match(/warning: .*/g)).toEqual([
      'warning: memory_limit has no effect without isolate: thread',
      expect.stringContaining('A promise was rejected with nobody listening: A migration needs a name'),
    ]);
    settings('modules:\n  - module: ./late.mjs\n    isolate: thread\n    memory_limit: 1M\n');
    await expect(rookery('check', '-c', file)).rejects.toThrow('memory_limit: expected a size of at least 16M');
  });

  it('shows warnings, and nothing when there is no module', async () => {
    write('old.mjs', source('old', 'api.registerThirdPartyRulesCallbacks({ onThreepidBind() {} });'));
    settings('modules:\n  - module: ./old.mjs\n');
    expect((await rookery('list', '-c', file)).out).toContain('warning: onThreepidBind is deprecated');
    // Without its judgements counting, its author believes.
    settings('modules:\n  - module: ./old.mjs\n    shadwo: true\n');
    expect((await rookery('check', '-c', file)).out).toMatch(
      /^warning: .*modules\[0\]\.shadwo: .*did you mean shadow/m,
    );
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
    writePackage('my-module', '1.0.0');
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
    expect(readdirSync(folder).filter((name) => name.endsWith('.db'))).toEqual([]);
    expect((await rookery('remove', 'my-module', '-c', file)).code).toBe(1);
  });

  it('installs again what was added, as after a restored backup', async () => {
    writePackage('my-module', '1.2.0');
    write('package/x.js', source('mine', joins));
    settings('');
    expect((await rookery('reinstall', '-c', file)).out).toContain('Nothing was added');
    await rookery('add', join(folder, 'package'), '-c', file);
    rmSync(join(folder, 'modules/node_modules'), { recursive: true });
    expect((await rookery('doctor', '-c', file)).out).toContain(`rookery module reinstall -c ${file}`);
    const { code, out } = await rookery('reinstall', '-c', file);
    expect(out).toContain('my-module 1.2.0');
    expect(out).toContain('ok     mine (my-module)');
    expect(code).toBe(0);
  });

  it('shows what a package says that it uses', async () => {
    const manifest = { callbacks: ['userMayJoinRoom'], hosts: ['api.example.org'], secrets: ['API_KEY'] };
    writePackage('open', '1.0.0', { rookery: manifest });
    write('package/x.js', source('open', joins));
    settings('');
    const { out } = await rookery('add', join(folder, 'package'), '-c', file);
    expect(out).toContain('is asked and told by: userMayJoinRoom');
    expect(out).toContain('keeps tables: nothing');
    expect(out).toContain('sends requests to: api.example.org');
    expect(out).toContain('reads from the environment: API_KEY');
  });

  /** A module that needs what its script makes. */
  const writeScripted = (hook: 'install' | 'postinstall'): void => {
    const scripts = { [hook]: `${JSON.stringify(process.execPath)} make.cjs` };
    writePackage('scripted', '1.0.0', { scripts });
    write('package/x.js', `import made from './made.js';${source('scripted', joins)}void made;`);
    write('package/make.cjs', `require('node:fs').writeFileSync('made.js', 'export default 1;');`);
    settings('');
  };

  it.each(['packed', 'a folder'])('lets no script of a package run before it is told to: %s', async (kind) => {
    writeScripted('install');
    const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder];
    spawnSync('npm', args, { cwd: join(folder, 'package') });
    const from = join(folder, kind === 'packed' ? 'scripted-1.0.0.tgz' : 'package');
    const first = await rookery('add', from, '-c', file);
    expect(existsSync(join(folder, 'modules/node_modules/scripted/made.js'))).toBe(false);
    const again = /rookery module (add \S+ --run-scripts -c \S+)$/m.exec(first.notes)?.[1]?.split(' ') ?? [];
    expect(first.notes).toContain('Not run: what scripted@1.0.0 would do when it is installed');
    expect(first.code).toBe(1);

    const second = await rookery(...again);
    expect(second.notes).not.toContain('Not run');
    expect(second.out).toContain('ok     scripted');
    expect(second.code).toBe(0);
  });

  it('lets the scripts of a package run that was not there before, when it is told to', async () => {
    writeScripted('postinstall');
    const { code, out } = await rookery('add', join(folder, 'package'), '--run-scripts', '-c', file);
    expect(out).toContain('ok     scripted');
    expect(code).toBe(0);
  });

  it('leaves the entry for the operator to fill in when the module needs settings', async () => {
    writePackage('strict', '1.0.0');
    write('package/x.js', source('strict', '', 'raw.words.length'));
    settings('');
    const { code, notes, out } = await rookery('add', join(folder, 'package'), '-c', file);
    expect(code).toBe(1);
    expect(out).toContain('FAILED strict');
    expect(notes).toContain('The server will not start before strict loads');
    expect(readFileSync(file, 'utf8')).toContain('- module: strict');
    // What was printed mends it.
    const printed = /rookery module (remove \S+ -c \S+)$/.exec(notes)?.[1]?.split(' ') ?? [];
    expect((await rookery(...printed)).code).toBe(0);
    expect((await rookery('check', '-c', file)).code).toBe(0);
  });

  it('needs a settings file, and takes no option for a package', async () => {
    expect(await rookery('add', 'x', '-c', join(folder, 'none.yaml'))).toMatchObject({ code: 1 });
    settings('');
    expect(await rookery('add', '-c', file, '--', '--force')).toMatchObject({ code: 2 });
    expect(await rookery('add', '', '-c', file)).toMatchObject({ code: 2, notes: '"" is no package' });
    expect(existsSync(join(folder, 'modules'))).toBe(false);
  });

  it('installs nothing for a settings file that it may not write', async () => {
    // The system's administrator may write everything, except what is not there any more.
    settings('');
    const gone = join(folder, 'elsewhere.yaml');
    write('plain.mjs', source('plain', joins));
    if (process.getuid?.() === 0) {
      expect(() => assertWritable(gone)).toThrow(/elsewhere\.yaml cannot be written: there is no such file/);
      return;
    }
    chmodSync(file, 0o400);
    const refused = await rookery('add', join(folder, 'plain.mjs'), '-c', file);
    expect(refused).toMatchObject({ code: 1, notes: `${file} cannot be written: permission denied` });
    expect((await rookery('remove', './plain.mjs', '-c', file)).code).toBe(1);
  });

  it('mends what it is named for: a listed package that is not installed, found from the settings of the server', async () => {
    write(
      'package/package.json',
      JSON.stringify({
        name: '@my/two',
        version: '1.0.0',
        type: 'module',
        exports: { '.': './x.js', './part': './x.js' },
      }),
    );
    write('package/x.js', `${source('first', joins)} export const second = 1;`);
    settings('');
    const parts = join(folder, 'conf.d');
    write('conf.d/10.yaml', 'modules:\n- module: "@my/two/part#default" # chosen\n');
    const asked = ['-c', file, '-c', parts];
    const problem = (await rookery('check', ...asked)).out;
    expect(problem).toContain(`10.yaml:2: module @my/two/part: the package is not installed for ${folder}`);
    const printed = /rookery module add @my\/two (.*)$/m.exec(problem)?.[1]?.split(' ') ?? [];
    expect(printed).toEqual(asked);
    // The one package that is on no registry is installed from where it lies.
    const added = await rookery('add', join(folder, 'package'), ...printed);
    expect(added).toMatchObject({
      code: 0,
      out: expect.stringContaining('ok     first (@my/two/part#default)') as string,
    });
    expect(readFileSync(join(parts, '10.yaml'), 'utf8')).toBe('modules:\n- module: "@my/two/part#default" # chosen\n');
    expect(existsSync(join(folder, 'modules/node_modules/@my/two'))).toBe(true);

    const missed = await rookery('remove', '@my/two', ...asked);
    expect(missed).toMatchObject({
      code: 1,
      notes: expect.stringContaining('it lists: @my/two/part#default') as string,
    });
    expect((await rookery('remove', '@my/two/part#default', ...asked)).code).toBe(0);
    expect(existsSync(join(folder, 'modules/node_modules/@my/two'))).toBe(false);
  });

  it('lists code that needs no installing by its path: a file, a folder without package.json', async () => {
    write('one.mjs', source('one', joins));
    write('plain/index.mjs', source('plain', joins));
    settings('');
    for (const [path, entry] of Object.entries({ 'one.mjs': './one.mjs', plain: './plain' })) {
      const added = await rookery('add', join(folder, path), '-c', file);
      expect(added).toMatchObject({ code: 0, out: expect.stringContaining(`(${entry})`) as string });
      expect(added.notes).toContain('rookery reload');
    }
    expect(existsSync(join(folder, 'modules'))).toBe(false);
  });
});
