/** Where npm finds the packages that a new module is written against: ranges of versions, or `file:` folders. */
export interface Sources {
  readonly api: string;
  readonly testing: string;
  readonly nest: string;
}

/** How a module is written: with functions, or as a Nest module. */
export type Style = 'plain' | 'nest';

/** What a module asks of the server that loads it, and of the registry: a folder of this machine is nowhere else. */
const publishedVersion = '^0.1.0';
/** The package that starts servers in tests. A module needs it, the program that writes modules does not. */
const testing = '@rookery/testing';
const quoted = `'${testing}'`;

/** The files of a new module: path to text. */
export function templateOf(packageName: string, sources: Sources, style: Style = 'plain'): ReadonlyMap<string, string> {
  const name = packageName.split('/').at(-1) ?? packageName;
  const isNest = style === 'nest';
  return new Map([
    ['package.json', packageJson(packageName, sources, isNest)],
    ['tsconfig.json', tsconfig(isNest)],
    ['tsconfig.build.json', tsconfigBuild],
    ['.gitignore', 'node_modules/\ndist/\n'],
    ['README.md', readme(packageName, name)],
    ...Object.entries(isNest ? nestSources(name) : { 'src/index.ts': source(name), 'src/config.ts': config }),
    ['test/module.test.ts', isNest ? nestTest(name) : test],
  ]);
}

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

const packageJson = (name: string, sources: Sources, isNest: boolean): string =>
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
      // Whoever packs a fresh checkout gets its code, too.
      prepack: 'npm run build',
    },
    // What it uses, shown to whoever installs it; in a thread of its own it is held to that.
    rookery: { callbacks: ['checkEventForSpam'], settings: ['max_length', 'message'] },
    // npm installs them once for all modules that ask for the same.
    ...(isNest && { dependencies: { '@rookery/nest': publishedVersion, ...nestPackages } }),
    peerDependencies: { '@rookery/module-api': publishedVersion },
    devDependencies: {
      '@rookery/module-api': sources.api,
      // Here it wins over what is asked of the registry.
      ...(isNest && sources.nest !== publishedVersion && { '@rookery/nest': sources.nest }),
      [testing]: sources.testing,
      '@types/node': '^24.0.0',
      // Runs TypeScript tests as they are; the machine's own may be older.
      node: '^24.0.0',
      typescript: '^6.0.0',
    },
    // npm asks before a package runs a script of its own; this one's brings the program itself.
    allowScripts: { node: true },
  });

/** What modules written with Nest are built on. */
const nestPackages = {
  '@nestjs/common': '^12.5.0',
  '@nestjs/core': '^12.5.0',
  '@nestjs/platform-fastify': '^12.5.0',
  'class-transformer': '^0.5.1',
  'class-validator': '^0.15.1',
  'reflect-metadata': '^0.2.2',
  rxjs: '^7.8.2',
};

const tsconfig = (isNest: boolean): string =>
  json({
    compilerOptions: {
      target: 'ES2024',
      module: 'nodenext',
      strict: true,
      noUncheckedIndexedAccess: true,
      verbatimModuleSyntax: true,
      // Nest reads the types of constructors' parameters.
      ...(isNest
        ? { experimentalDecorators: true, emitDecoratorMetadata: true, strictPropertyInitialization: false }
        : { erasableSyntaxOnly: true }),
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
import { configJsonSchema, parseConfig } from './config.js';

/** Refuses messages that are longer than the settings allow. */
export default defineModule({
  name: '${name}',
  configJsonSchema,
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

/** For editors and administrators: \`rookery module settings\`, \`rookery config schema\`. */
export const configJsonSchema = {
  type: 'object',
  properties: {
    max_length: { type: 'number', minimum: 1, default: 1000, description: 'Longer messages are refused.' },
    message: { type: 'string', default: 'This message is too long', description: 'What the sender reads.' },
  },
  additionalProperties: false,
};

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

const nestSources = (name: string): Readonly<Record<string, string>> => ({
  'src/index.ts': `import { Module } from '@nestjs/common';
import { nestModule } from '@rookery/nest';
import { LengthController } from './length.controller.js';
import { LengthService } from './length.service.js';
import { Settings } from './settings.js';

@Module({ providers: [LengthService], controllers: [LengthController] })
class LengthModule {}

/** Refuses messages that are longer than the settings allow. */
export default nestModule({
  name: '${name}',
  settings: Settings,
  module: LengthModule,
  webResource: '/_synapse/client/${name}',
});
`,
  'src/settings.ts': `import { IsInt, IsString, Min } from 'class-validator';

/** The \`config\` of the module's entry: what is wrong in it keeps the server from starting, and is shown with file and line. */
export class Settings {
  @IsInt()
  @Min(1)
  max_length = 1000;

  /** What the sender reads. */
  @IsString()
  message = 'This message is too long';
}
`,
  'src/length.service.ts': `import { Injectable } from '@nestjs/common';
import { Codes, type EventVerdict, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { CheckEventForSpam, MatrixLog } from '@rookery/nest';
import { Settings } from './settings.js';

@Injectable()
export class LengthService {
  refused = 0;

  constructor(
    private readonly settings: Settings,
    private readonly log: MatrixLog,
  ) {}

  @CheckEventForSpam()
  check(event: ModuleEvent): EventVerdict {
    const { body } = event.content;
    if (event.type !== 'm.room.message' || typeof body !== 'string' || body.length <= this.settings.max_length) return NOT_SPAM;
    this.refused++;
    this.log.info('Message refused', { sender: event.sender, length: body.length });
    return { errcode: Codes.FORBIDDEN, message: this.settings.message };
  }
}
`,
  'src/length.controller.ts': `import { Controller, Get } from '@nestjs/common';
import { ForUsers } from '@rookery/nest';
import { LengthService } from './length.service.js';
import { Settings } from './settings.js';

/** GET /_synapse/client/${name}, with an access token. */
@Controller()
@ForUsers()
export class LengthController {
  constructor(
    private readonly length: LengthService,
    private readonly settings: Settings,
  ) {}

  @Get()
  limit(): object {
    return { max_length: this.settings.max_length, refused: this.length.refused };
  }
}
`,
});

const nestTest = (name: string): string => `${test}
test('the limit can be asked for', async () => {
  const bob = await homeserver.registerUser('bob');
  const { status, body } = await bob.request<{ max_length: number }>('GET', '/_synapse/client/${name}');
  assert.equal(status, 200);
  assert.equal(body.max_length, 10);
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

\`npm test\` compiles the module and tries it in a real server. To watch it at work in a server of yours, name this folder:

\`\`\`sh
rookery module add ../${name} -c homeserver.yaml
rookery module dev ../${name} -c homeserver.yaml
\`\`\`

The first installs it as a link, the second runs the server, builds and reloads the module when a file of it changes, and shows what it does.
`;
