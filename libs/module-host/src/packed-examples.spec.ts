import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { NpmRegistry } from '../../../test/support/npm-registry.js';
import { isHostAllowed } from './manifest.js';
import { idpKeys } from '../../../test/e2e/sso/fixtures/saml-keys.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const examples = readdirSync(join(root, 'modules-examples'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  .sort();
interface Package {
  readonly name: string;
  readonly rookery: Readonly<Record<'callbacks' | 'tables' | 'hosts' | 'secrets' | 'settings' | 'modules', string[]>>;
}
const manifest = (folder: string): Package =>
  JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as Package;

const certificate = idpKeys.cert;

/** The settings that the page of a package shows for its module. */
function shownSettings(name: string): string[] {
  const page = readFileSync(join(root, 'modules-examples', name, 'README.md'), 'utf8');
  const { modules = [] } = parse(/```yaml\n([^]*?)```/.exec(page)?.[1] ?? '{}') as {
    readonly modules?: readonly { readonly config?: object }[];
  };
  return modules.flatMap(({ config = {} }) => Object.keys(config));
}

it.each(examples)('%s names in its manifest every setting that its page shows', (name) => {
  expect(manifest(`modules-examples/${name}`).rookery.settings).toEqual(expect.arrayContaining(shownSettings(name)));
});

let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-packed-'));
  const packed = join(folder, 'packed');
  const empty = join(folder, 'server');
  mkdirSync(packed);
  mkdirSync(empty);
  const options = { cwd: root, stdio: 'pipe', env: { ...process.env, NODE_OPTIONS: '' } } as const;
  const tsc = join(root, 'node_modules/typescript7/bin/tsc');
  const folders = [
    'libs/matrix-types',
    'libs/module-api',
    'libs/passport',
    'libs/nest',
    'libs/typeorm',
    ...examples.map((name) => `modules-examples/${name}`),
  ];
  execFileSync(process.execPath, [tsc, '-b', ...folders, 'libs/module-host'], options);
  execFileSync(
    'npm',
    ['pack', '--silent', '--pack-destination', packed, ...folders.map((path) => `./${path}`)],
    options,
  );
  writeFileSync(join(empty, 'package.json'), JSON.stringify({ name: 'empty', private: true }));
  const tarballs = readdirSync(packed).map((file) => join(packed, file));
  // What the examples need beside ours comes from where this checkout has it.
  const registry = await NpmRegistry.start();
  try {
    await promisify(execFile)('npm', ['install', '--silent', ...tarballs], {
      ...{ cwd: empty, env: registry.env(join(folder, 'cache')) },
    });
  } finally {
    await registry.stop();
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Loads one module into a host of a process of its own, as a server would, and asks it one thing. */
const script = (module: string, config: unknown, question: string, isolate?: 'thread'): string => `
  import { ModuleHost, callbackContext, offlineCapabilities } from '${join(root, 'libs/module-host/dist/index.js')}';
  import { SilentLogger, SystemClock } from '${join(root, 'libs/platform/dist/index.js')}';
  // As a server's sockets do: threads keep no process awake.
  const awake = setInterval(() => {}, 60_000);
  const host = new ModuleHost({ clock: new SystemClock(), logger: new SilentLogger(), configDir: process.cwd() });
  const entry = { module: '${module}', config: ${JSON.stringify(config)}, onError: 'deny', allowFederationTo: [], isolate: ${JSON.stringify(isolate)} };
  const loaded = await host.import([entry]);
  const offline = offlineCapabilities({ serverName: 'example.org', publicBaseurl: 'https://example.org/' });
  const run = (module, description, work) => work({ dialect: 'sqlite', query: async () => [], run: async () => 0 });
  await host.start(loaded, { ...offline, tables: { ...offline.tables, run } });
  const context = callbackContext(undefined);
  const event = { eventId: '$1', type: 'm.room.message', content: { body: 'a casino' } };
  const answer = await (${question})(host.dispatcher, context, event);
  const callbacks = host.dispatcher.summary()[0].callbacks;
  console.log(JSON.stringify({ url: loaded[0].url, modules: host.dispatcher.modules, callbacks, answer }));
  await host.stop();
  clearInterval(awake);
`;

const ask = (
  module: string,
  config: unknown,
  question: string,
  isolate?: 'thread',
): { url: string; modules: string[]; callbacks: string[]; answer: unknown } => {
  const code = script(module, config, question, isolate);
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', code], {
    cwd: join(folder, 'server'),
    env: { ...process.env, NODE_OPTIONS: '' },
    encoding: 'utf8',
  });
  return JSON.parse(output) as ReturnType<typeof ask>;
};

/** Settings with which each example loads, one question to it, and part of its answer. */
const cases: Record<string, { config: unknown; question: string; answer: unknown }> = {
  'account-validity-mail': {
    config: { period_days: 30 },
    question: `async (modules) => modules.webPrefixes`,
    answer: ['/_synapse/client/account-validity/renew', '/_synapse/client/account-validity/users'],
  },
  'audit-log': {
    config: { key: 'x'.repeat(32) },
    question: `async (modules) => modules.webPrefixes`,
    answer: ['/_synapse/client/audit-log', '/_synapse/client/audit-log/verify'],
  },
  'encryption-policy': {
    config: {},
    question: `(modules, context) => modules.transform('onCreateRoom', context, {}, {}, false)`,
    answer: { allowed: true, value: { initial_state: [{ type: 'm.room.encryption' }] } },
  },
  'github-login': {
    config: {
      providers: [
        { client_id: 'a', client_secret: 'b' },
        { id: 'work', client_id: 'a', client_secret: 'b' },
      ],
    },
    question: `async (modules) => [...modules.identityProviders.keys()]`,
    answer: ['github', 'work'],
  },
  'http-antispam': {
    config: { url: 'https://spam.example/check', on_failure: 'deny' },
    question: `(modules, context, event) => modules.gate('checkEventForSpam', context, event)`,
    answer: { allowed: false, module: 'http-antispam', failed: false },
  },
  'invite-policy': {
    config: { otherwise: 'drop' },
    question: `(modules, context) => modules.gate('userMayInvite', context, '@a:x', '@b:x', '!r:x')`,
    answer: { allowed: false, effect: 'dropSilently', module: 'invite-policy' },
  },
  'ldap-login': {
    config: { directories: [{ url: 'ldaps://ldap.example', base: 'dc=example' }] },
    question: `async (modules) => [...modules.identityProviders.keys()]`,
    answer: ['ldap'],
  },
  'malware-scan': {
    config: { scanner: 'clamd://127.0.0.1:1', message: 'no' },
    question: `(modules, context) => modules.gate('checkMediaFileForSpam', context, { sizeBytes: 1, stream: async function* () {} }, { fileId: 'a' })`,
    answer: { allowed: false, errcode: 'M_FORBIDDEN', module: 'malware-scan' },
  },
  'nest-welcome': {
    config: { sender: 'concierge', text: 'Hello' },
    question: `(modules, context, event) => modules.gate('checkEventForSpam', context, { ...event, content: { body: 'Hello' } })`,
    answer: { allowed: false, errcode: 'M_FORBIDDEN', module: 'nest-welcome' },
  },
  'oidc-login': {
    config: {
      providers: [{ id: 'a', name: 'A', issuer: 'https://id.example', client_id: 'a', client_secret: 'b' }],
    },
    question: `async (modules) => [...modules.identityProviders.keys()]`,
    answer: ['a'],
  },
  'oidc-mapper': {
    config: undefined,
    question: `async (modules) => modules.provider('oidcMapping', 'oidc-mapper').create({}).getRemoteUserId({ sub: 'a' })`,
    answer: 'a',
  },
  'policy-lists': {
    config: { rooms: ['!a:x'], max_mentions: 1 },
    question: `(modules, context, event) => modules.gate('checkEventForSpam', context, { ...event, sender: '@a:x', content: { 'm.mentions': { user_ids: ['@b:x', '@c:x'] } } })`,
    answer: { allowed: false, errcode: 'M_FORBIDDEN', module: 'policy-lists' },
  },
  'rest-auth': {
    config: { url: 'https://id.example/check' },
    question: `async (modules) => [...modules.loginTypes.keys()]`,
    answer: ['m.login.password'],
  },
  'retention-policy': {
    config: { rooms: [{ kind: 'private', max_lifetime_days: 1 }] },
    question: `(modules, context) => modules.transform('onCreateRoom', context, {}, {}, false)`,
    answer: {
      allowed: true,
      value: { initial_state: [{ type: 'm.room.retention', content: { max_lifetime: 86_400_000 } }] },
    },
  },
  'room-notes': {
    config: undefined,
    question: `async (modules) => modules.webPrefixes`,
    answer: ['/_synapse/client/notes'],
  },
  's3-media-storage': {
    config: undefined,
    question: `async (modules) => {
      const provider = modules.provider('mediaStorage', 's3-media-storage').create(
        { bucket: 'media', region: 'x', access_key_id: 'a', secret_access_key: 'b' },
        { serverName: 'example.org', maxUploadBytes: 1000 },
      );
      return Object.keys(provider);
    }`,
    answer: ['storeFile', 'fetch', 'remove', 'downloadUrl'],
  },
  'saml-login': {
    config: {
      providers: [{ id: 'a', name: 'A', entry_point: 'https://idp.example/sso', certificates: [certificate] }],
    },
    question: `async (modules) => [...modules.identityProviders.keys()]`,
    answer: ['a'],
  },
  'scim-provisioning': {
    config: { token: 'x'.repeat(32) },
    question: `async (modules) => modules.webPrefixes.includes('/_synapse/client/scim/v2/Users')`,
    answer: true,
  },
  'shared-secret-auth': {
    config: { shared_secret: 'x'.repeat(32) },
    question: `async (modules) => [...modules.loginTypes.keys()]`,
    answer: ['com.devture.shared_secret_auth'],
  },
  'terms-of-use': {
    config: { version: '1', documents: [{ name: 'Terms', url: 'https://example.org/terms' }] },
    question: `async (modules) => modules.webPrefixes`,
    answer: ['/_synapse/client/terms-of-use', '/_synapse/client/terms-of-use/agreements'],
  },
  'threepid-audit': {
    config: { email_domains: ['example.org'] },
    question: `(modules, context) => modules.gate('is3pidAllowed', context, 'email', 'a@elsewhere.example', true)`,
    answer: { allowed: false, errcode: 'M_THREEPID_DENIED', module: 'threepid-audit' },
  },
  'word-filter': {
    config: { words: ['casino'], message: 'mind your words' },
    question: `(modules, context, event) => modules.gate('checkEventForSpam', context, event)`,
    answer: { allowed: false, status: 403, errcode: 'M_FORBIDDEN', message: 'mind your words', module: 'word-filter' },
  },
};

it('knows every example', () => {
  expect(Object.keys(cases).sort()).toEqual(examples);
});

it.each(examples)('%s loads from its packed form in an empty folder, and answers', (name) => {
  const { config, question, answer } = cases[name] ?? { config: undefined, question: '', answer: undefined };
  const result = ask(manifest(`modules-examples/${name}`).name, config, question);
  expect(result.url).toContain(join(folder, 'server', 'node_modules'));
  expect(result.modules).toEqual([name]);
  // As part of an object, since an answer need not be one.
  expect(result).toMatchObject({ answer });
});

it.each(examples)('%s answers the same in a thread of its own, held to its manifest', (name) => {
  const { config, question, answer } = cases[name] ?? { config: undefined, question: '', answer: undefined };
  const result = ask(manifest(`modules-examples/${name}`).name, config, question, 'thread');
  expect(result).toMatchObject({ modules: [name], answer });
});

/** Packages in the sources of examples that connect to nothing by themselves. */
const connectless = ['@nestjs/common', 'class-validator', 'typeorm', 'jose', '@node-saml/passport-saml'];
/** Ways out of the server: requests, sockets, and packages that may connect. */
function waysOut(sources: string): string[] {
  const ways =
    /\bhttpClient\b|\bfederation\.\w+|(?<![.\w])(?:fetch|WebSocket|EventSource)(?=\()|'node:(?:net|tls|https?|http2|dns)'/g;
  const imported = [...sources.matchAll(/(?:from|import\() ?'((?:@[\w-]+\/)?[\w-]+)/g)].map(([, name = '']) => name);
  const packages = imported.filter((name) => !/^(?:node$|@rookery\/)/.test(name) && !connectless.includes(name));
  return [...new Set([...[...sources.matchAll(ways)].map(([way]) => way), ...packages])];
}

it('finds each way out of the server', () => {
  const each = ['httpClient', 'fetch', 'federation.request', "'node:tls'", 'ldapts', '@aws-sdk/client-s3'];
  const lines = ['api.httpClient.get(url);', 'await fetch(url);', 'api.federation.request();', "import 'node:tls';"];
  const imports = ["import { Client } from 'ldapts';", "await import('@aws-sdk/client-s3');", "from '@rookery/nest';"];
  expect(waysOut([...lines, ...imports, "from './fetch.js'; from 'node:crypto'; store.fetch(id);"].join('\n'))).toEqual(
    expect.arrayContaining(each),
  );
  expect(waysOut("from './net.js'; from 'node:crypto'; from 'typeorm'; store.fetch(id);")).toEqual([]);
});

/** Whose callbacks depend on their settings: settings with all of them. */
const everything: Record<string, unknown> = {
  'http-antispam': {
    ...{ url: 'https://spam.example/check', on_failure: 'deny' },
    ask: [
      ...['event', 'invite', 'remote_invite', 'threepid_invite', 'join', 'room', 'alias', 'publish', 'username'],
      ...['registration', 'login'],
    ],
  },
};

it.each(examples)('the manifest of %s says what it uses, and nothing else', (name) => {
  const { rookery, name: packageName } = manifest(`modules-examples/${name}`);
  expect(Object.keys(rookery)).toEqual(['callbacks', 'tables', 'hosts', 'secrets', 'settings', 'modules']);
  const { callbacks } = ask(packageName, everything[name] ?? cases[name]?.config, `async () => null`);
  expect(callbacks.sort()).toEqual(rookery.callbacks.toSorted());
  const folder = join(root, 'modules-examples', name);
  const sources = (readdirSync(join(folder, 'src'), { recursive: true }) as string[])
    .filter((file) => file.endsWith('.ts'))
    .map((file) => readFileSync(join(folder, 'src', file), 'utf8'))
    .join('\n');
  const tables = [...sources.matchAll(/@Entity\('(\w+)'|CREATE TABLE (?:IF NOT EXISTS )?module_[a-z_]+?__?(\w+)/g)];
  expect([...new Set(tables.map(([, entity, table]) => entity ?? table))]).toEqual(rookery.tables);
  expect([...sources.matchAll(/process\.env\.?\[?'?(\w+)/g)].map(([, variable]) => variable)).toEqual(rookery.secrets);
  expect([...sources.matchAll(/messages\.ask\('(\w+)'/g)].map(([, module]) => module)).toEqual(rookery.modules);
  // Who names no host has no way out; who has one names where to.
  const ways = waysOut(sources);
  expect({ ways, isHeld: rookery.hosts.length === 0 }).toEqual({ ways, isHeld: ways.length === 0 });
  const written = [...sources.matchAll(/['`]https?:\/\/([\w.-]+\w)(?=[/:'`])/g)].map(([, host = '']) => host);
  for (const host of rookery.hosts.filter((one) => one !== '*'))
    expect(written.some((one) => isHostAllowed([host], one))).toBe(true);
  const readme = readFileSync(join(folder, 'README.md'), 'utf8');
  for (const setting of rookery.settings)
    expect([setting, readme]).toEqual([setting, expect.stringContaining(setting)]);
});
