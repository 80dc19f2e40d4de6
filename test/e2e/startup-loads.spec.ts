import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ServerProcess } from '../support/server-process.js';

/** Packages that every start loads. */
const loaded = [
  '@nestjs/common',
  '@nestjs/core',
  '@nestjs/platform-fastify',
  '@node-rs/bcrypt',
  'better-sqlite3',
  'commander',
  'fastify',
  'find-my-way',
  'lru-cache',
  'pino',
  'prom-client',
  'reflect-metadata',
  'rxjs',
  'yaml',
];

/** Packages that a server on SQLite does without, and what it is that loads them. */
const notLoaded: Readonly<Record<string, string>> = {
  '@fastify/cors': 'nothing of the server: the framework asks for it where CORS is its own',
  '@node-saml/node-saml': 'saml2_config',
  '@redis/client': 'redis.enabled',
  ajv: 'the first body, or the settings of a module',
  'class-transformer': 'modules',
  'class-validator': 'modules',
  'encoding-sniffer': 'the first preview of a page',
  'fast-xml-parser': 'saml2_config, cas_config',
  'file-type': 'nothing of the server: the framework looks for it where it is asked to check uploads',
  htmlparser2: 'the first mail, or the first preview of a page',
  'minijinja-js': 'the first page or mail',
  nodemailer: 'email.notif_from',
  'openid-client': 'oidc_providers',
  pg: 'database.name: psycopg2',
  'pino-pretty': 'nothing of the server, which has lines of its own for people',
  re2js: 'namespaces of application services, and patterns of settings',
  sharp: 'the first thumbnail',
  typeorm: 'modules',
  undici: 'the first request to another server',
};

/** What those would bring along, or what the framework would for what we do ourselves. */
const notLoadedEither = [
  '@fastify/ajv-compiler',
  '@fastify/fast-json-stringify-compiler',
  '@fastify/merge-json-schemas',
  'ajv-formats',
  'domhandler',
  'entities',
  'fast-uri',
  'jose',
  'json-schema-ref-resolver',
  'oauth4webapi',
  'pg-protocol',
  'pg-types',
  'source-map-support',
  'token-types',
  'xml-crypto',
];

const packageOf = (url: string): string | undefined =>
  /^file:.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*\/node_modules\/)/.exec(url)?.[1];

describe('a start loads what a server needs', () => {
  let server: ServerProcess;
  let packages: ReadonlySet<string>;
  let runtime: readonly string[];
  beforeAll(async () => {
    server = await ServerProcess.prepare('sqlite');
    const report = join(server.folder, 'loaded.json');
    const hooks = join(process.cwd(), 'test/support/loaded-modules.mjs');
    await server.start(['--import', hooks], { LOADED_MODULES: report });
    expect(await server.stop()).toBe(0);
    const found = JSON.parse(readFileSync(report, 'utf8')) as { files: string[]; runtime: string[] };
    packages = new Set(found.files.flatMap((url) => packageOf(url) ?? []));
    ({ runtime } = found);
  }, 120_000);
  afterAll(() => server.remove());

  it('and every dependency is known as loaded or not', () => {
    const { dependencies } = JSON.parse(readFileSync(join(process.cwd(), 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    expect([...loaded, ...Object.keys(notLoaded)].toSorted()).toEqual(Object.keys(dependencies).toSorted());
  });

  it('and nothing of what only some settings, requests or modules need', () => {
    expect(loaded.filter((name) => !packages.has(name))).toEqual([]);
    expect([...Object.keys(notLoaded), ...notLoadedEither].filter((name) => packages.has(name))).toEqual([]);
  });

  it("and not the runtime's own client for the web", () => {
    expect(runtime.filter((name) => name.includes('deps/undici'))).toEqual([]);
  });
});
