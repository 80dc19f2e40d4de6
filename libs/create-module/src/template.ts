/** Where npm finds the packages that a new module is written against: ranges of versions, or `file:` folders. */
export interface Sources {
  readonly api: string;
  readonly testing: string;
}

/** What a module asks of the server that loads it. */
const peerVersion = '^0.1.0';
/** The package that starts servers in tests. A module needs it, the program that writes modules does not. */
const testing = '@rookery/testing';
const quoted = `'${testing}'`;

/** The files of a new module: path to text. */
export function templateOf(packageName: string, sources: Sources): ReadonlyMap<string, string> {
  const name = packageName.split('/').at(-1) ?? packageName;
  return new Map([
    ['package.json', packageJson(packageName, sources)],
    ['tsconfig.json', tsconfig],
    ['tsconfig.build.json', tsconfigBuild],
    ['.gitignore', 'node_modules/\ndist/\n'],
    ['README.md', readme(packageName, name)],
    ['src/index.ts', source(name)],
    ['src/config.ts', config],
    ['test/module.test.ts', test],
  ]);
}

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

const packageJson = (name: string, sources: Sources): string =>
  json({
    name,
    version: '0.1.0',
    description: 'A Rookery module',
    license: 'Apache-2.0',
    type: 'module',
    exports: { '.': { types: './dist/index.d.ts', import: './dist/index.js' } },
    files: ['dist'],
    keywords: ['rookery', 'rookery-module', 'matrix'],
    engines: { node: '>=22.18' },
    scripts: {
      check: 'tsc',
      build: 'tsc -p tsconfig.build.json',
      test: 'npm run check && npm run build && node --test "test/*.test.ts"',
      prepublishOnly: 'npm test',
    },
    peerDependencies: { '@rookery/module-api': peerVersion },
    devDependencies: {
      '@rookery/module-api': sources.api,
      [testing]: sources.testing,
      '@types/node': '^24.0.0',
      // Runs TypeScript tests as they are; the machine's own may be older.
      node: '^24.0.0',
      typescript: '^6.0.0',
    },
    // npm asks before a package runs a script of its own; this one's brings the program itself.
    allowScripts: { node: true },
  });

const tsconfig = json({
  compilerOptions: {
    target: 'ES2024',
    module: 'nodenext',
    strict: true,
    noUncheckedIndexedAccess: true,
    verbatimModuleSyntax: true,
    erasableSyntaxOnly: true,
    skipLibCheck: true,
    noEmit: true,
    types: ['node'],
  },
  include: ['src', 'test'],
});

const tsconfigBuild = json({
  extends: './tsconfig.json',
  compilerOptions: { noEmit: false, declaration: true, sourceMap: true, rootDir: 'src', outDir: 'dist' },
  include: ['src'],
});

const source = (name: string): string => `import { Codes, defineModule, NOT_SPAM } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** Refuses messages that are longer than the settings allow. */
export default defineModule({
  name: '${name}',
  parseConfig,
  register(api, { maxLength, message }) {
    api.registerSpamCheckerCallbacks({
      checkEventForSpam(event) {
        const { body } = event.content;
        if (event.type !== 'm.room.message' || typeof body !== 'string' || body.length <= maxLength) return NOT_SPAM;
        api.log.info('Message refused', { sender: event.sender, length: body.length });
        return { errcode: Codes.FORBIDDEN, message };
      },
    });
  },
});
`;

const config = `import { ConfigError } from '@rookery/module-api';

export interface Config {
  readonly maxLength: number;
  /** What the sender reads. */
  readonly message: string;
}

/** Checks the \`config\` of the module's entry. @throws ConfigError: the server refuses to start and shows file and line */
export function parseConfig(raw: unknown = {}): Config {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object');
  const { max_length: maxLength = 1000, message = 'This message is too long', ...others } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) throw new ConfigError('is unknown; there are max_length and message', [name]);
  if (typeof maxLength !== 'number' || !(maxLength >= 1)) throw new ConfigError('expected a number of at least 1', ['max_length']);
  if (typeof message !== 'string') throw new ConfigError('expected a text', ['message']);
  return { maxLength, message };
}
`;

const test = `import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver } from ${quoted};

let homeserver: TestHomeserver;
before(async () => {
  const module = fileURLToPath(new URL('../dist/index.js', import.meta.url));
  homeserver = await createTestHomeserver({ settings: { modules: [{ module, config: { max_length: 10 } }] } });
});
after(() => homeserver.stop());

test('a long message is refused, a short one is sent', async () => {
  const alice = await homeserver.registerUser('alice');
  const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
  const send = (txnId: string, text: string) =>
    alice.request<{ errcode?: string }>(
      'PUT',
      \`/rooms/\${encodeURIComponent(body.room_id)}/send/m.room.message/\${txnId}\`,
      { msgtype: 'm.text', body: text },
    );
  const long = await send('1', 'Hello, dear world!');
  assert.equal(long.status, 403);
  assert.equal(long.body.errcode, 'M_FORBIDDEN');
  assert.equal((await send('2', 'Hello')).status, 200);
});
`;

const readme = (packageName: string, name: string): string => `# ${name}

A Rookery module: refuses messages that are longer than the settings allow.

\`\`\`sh
rookery module add ${packageName}
\`\`\`

\`\`\`yaml
modules:
  - module: '${packageName}'
    config:
      max_length: 1000
      message: This message is too long
\`\`\`

\`npm test\` compiles the module and tries it in a real server.
`;
