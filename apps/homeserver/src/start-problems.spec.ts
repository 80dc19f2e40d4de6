import { type Config, SettingsError, describeProblem, loadConfig, SilentLogger } from '@rookery/platform';
import { freePort } from '@rookery/testing';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Homeserver } from './create-homeserver.js';
import { checkShareable } from './database-options.js';
import { startProblems } from './start-problems.js';
import { checkParts, startupMessage } from './startup-error.js';

interface Refusal {
  readonly what: string;
  /** Lines of the settings, in place of or beside the usual ones. */
  readonly settings: string;
  /** Files that lie beside them. */
  readonly files?: Readonly<Record<string, string>>;
  readonly folders?: readonly string[];
  /** What the line for the operator says. */
  readonly says: RegExp;
  /** What a check of the settings names, nothing where a file says it itself; `undefined` where only a start can tell. */
  readonly setting: string | readonly string[] | undefined;
}

const listener = 'bind_addresses: [127.0.0.1], type: http, resources: [{names: [client, federation]}]';
const oidc = (more: string): string =>
  `oidc_providers:\n  - {idp_id: one, idp_name: One, issuer: 'https://idp.test', client_id: c, scopes: [openid], ${more}}\n`;
const module = (code: string): Readonly<Record<string, string>> => ({
  'own.mjs': `export default { $$type: 'RookeryModule', name: 'own', apiVersion: '1.0', parseConfig: () => undefined, ${code} };`,
});

const refusals: readonly Refusal[] = [
  {
    what: 'a signing key that is a folder',
    settings: 'signing_key_path: keys\n',
    folders: ['keys'],
    says: /keys: it is a folder/,
    setting: 'signing_key_path',
  },
  {
    what: 'a signing key that is none',
    settings: 'signing_key_path: key\n',
    files: { key: 'no key\n' },
    says: /\/key: /,
    setting: 'signing_key_path',
  },
  {
    what: 'a key of the past that is none',
    settings: "old_signing_keys: {'ed25519:x': {key: 'AAAA', expired_ts: 5}}\n",
    says: /old_signing_keys|homeserver\.yaml:\d+: .*key/,
    setting: 'old_signing_keys',
  },
  {
    what: 'a missing key of the notary',
    settings: 'key_server_signing_keys_path: absent\n',
    says: /absent: there is no such file/,
    setting: 'key_server_signing_keys_path',
  },
  {
    what: 'a missing certificate',
    settings: `listeners: [{port: 8448, tls: true, ${listener}}]\ntls_certificate_path: absent.pem\ntls_private_key_path: absent.key\n`,
    says: /absent\.pem/,
    setting: 'tls_certificate_path',
  },
  {
    what: 'a certificate that is none',
    settings: `listeners: [{port: 8448, tls: true, ${listener}}]\ntls_certificate_path: bad.pem\ntls_private_key_path: bad.key\n`,
    files: { 'bad.pem': 'nothing', 'bad.key': 'nothing' },
    says: /bad\.pem/,
    setting: 'tls_certificate_path',
  },
  {
    what: 'a media store in the place of a file',
    settings: 'media_store_path: taken/media\n',
    files: { taken: '' },
    says: /taken\/media: a part of the path is not a folder/,
    setting: 'media_store_path',
  },
  {
    what: 'a storage of media that nobody provides',
    settings: 'media_storage_providers: [{module: s3, store_local: true, config: {}}]\n',
    says: /s3.*no module provides/s,
    setting: undefined,
  },
  {
    what: 'providers of previews that are no JSON',
    settings:
      "url_preview_enabled: true\nurl_preview_ip_range_blacklist: ['10.0.0.0/8']\noembed: {additional_providers: [o.json]}\n",
    files: { 'o.json': 'no' },
    says: /o\.json/,
    setting: 'oembed.additional_providers',
  },
  {
    what: 'an address for errors that is none',
    settings: "sentry: {dsn: 'https://host'}\n",
    says: /dsn/,
    setting: 'sentry.dsn',
  },
  {
    what: 'a missing folder of templates',
    settings: 'templates: {custom_template_directory: absent}\n',
    says: /absent/,
    setting: 'templates.custom_template_directory',
  },
  {
    what: 'a template that is none',
    settings: 'templates: {custom_template_directory: pages}\n',
    folders: ['pages'],
    files: { 'pages/not_found.html': '{% if %}' },
    says: /not_found\.html/,
    setting: 'templates.custom_template_directory',
  },
  {
    what: 'documents of consent that are not there',
    settings: "public_baseurl: 'https://a.test/'\nform_secret: s\nuser_consent: {version: '1', template_dir: absent}\n",
    says: /absent/,
    setting: 'user_consent.template_dir',
  },
  {
    what: 'a version of consent that has no document',
    settings: 'form_secret: s\nuser_consent: {version: 2.0, template_dir: policy}\n',
    folders: ['policy', 'policy/en'],
    files: { 'policy/en/2.html': 'Agree?' },
    says: /homeserver\.yaml:\d+: user_consent\.version: there is no en\/2\.0\.html in .*policy/,
    setting: 'user_consent.version',
  },
  {
    what: 'a registration of an application service that is not there',
    settings: 'app_service_config_files: [absent.yaml]\n',
    says: /absent\.yaml/,
    setting: '',
  },
  {
    what: 'a registration of an application service without a token',
    settings: 'app_service_config_files: [as.yaml]\n',
    files: { 'as.yaml': 'id: a\nurl: null\nsender_localpart: a\nnamespaces: {}\n' },
    says: /as\.yaml/,
    setting: ['as_token', 'hs_token'],
  },
  {
    what: 'authorities that are not there',
    settings: 'federation_custom_ca_list: [absent.pem]\n',
    says: /absent\.pem/,
    setting: 'federation_custom_ca_list[0]',
  },
  {
    what: 'a key of a trusted server that is none',
    settings: "trusted_key_servers: [{server_name: a.test, verify_keys: {'ed25519:x': 'AAAA'}}]\n",
    says: /trusted_key_servers/,
    setting: 'trusted_key_servers',
  },
  {
    what: 'a database in the place of a folder',
    settings: 'database: {name: sqlite3, args: {database: folder}}\n',
    folders: ['folder'],
    says: /folder/,
    setting: 'database.args',
  },
  {
    what: 'a database that cannot be reached',
    settings: 'database: {name: psycopg2, args: {host: 127.0.0.1, port: 1, user: a, dbname: b}}\n',
    says: /127\.0\.0\.1/,
    setting: undefined,
  },
  {
    what: 'a certificate for the database that is not there',
    settings:
      'database: {name: psycopg2, args: {host: 127.0.0.1, user: a, dbname: b, sslmode: verify-ca, sslrootcert: absent.pem}}\n',
    says: /absent\.pem/,
    setting: 'database.args',
  },
  {
    what: 'an argument of one of several databases that there is not',
    settings:
      'databases: {a: {name: psycopg2, data_stores: main, args: {pasword: c}}, b: {name: psycopg2, data_stores: state, args: {dbname: b}}}\n',
    says: /databases\.a\.args\.pasword is not known/,
    setting: 'databases.a',
  },
  {
    what: 'several processes without PostgreSQL',
    settings: 'redis: {enabled: true, port: 1}\n',
    says: /PostgreSQL/,
    setting: 'redis.enabled',
  },
  {
    what: 'a sender of mails that is none',
    settings: "email: {smtp_host: localhost, notif_from: 'nobody'}\n",
    says: /notif_from/,
    setting: 'email.notif_from',
  },
  {
    what: 'an algorithm of tokens that there is not',
    settings: 'jwt_config: {enabled: true, secret: s, algorithm: XS256}\n',
    says: /jwt_config.*XS256|XS256/,
    setting: 'jwt_config.algorithm',
  },
  {
    what: 'a key of tokens that is none',
    settings: 'jwt_config: {enabled: true, secret: s, algorithm: RS256}\n',
    says: /jwt_config\.secret/,
    setting: 'jwt_config.secret',
  },
  {
    what: 'a secret of a provider that is not there',
    settings: `public_baseurl: 'https://a.test/'\n${oidc('client_secret_path: absent')}`,
    says: /absent/,
    setting: 'oidc_providers[0].client_secret_path',
  },
  {
    what: 'a key of a provider that is none',
    settings: `public_baseurl: 'https://a.test/'\n${oidc('client_secret_jwt_key: {key: no, jwt_header: {alg: ES256, kid: a}, jwt_payload: {iss: a}}')}`,
    says: /client_secret_jwt_key/,
    setting: 'oidc_providers[0].client_secret_jwt_key.key',
  },
  {
    what: 'a template of names that is none',
    settings: `public_baseurl: 'https://a.test/'\n${oidc("client_secret: s, user_mapping_provider: {config: {localpart_template: '{{ a'}}")}`,
    says: /localpart_template/,
    setting: 'oidc_providers[0].user_mapping_provider.config.localpart_template',
  },
  {
    what: 'two providers of one name',
    settings: `public_baseurl: 'https://a.test/'\n${oidc('client_secret: s')}  - {idp_id: one, idp_name: Two, issuer: 'https://idp.test', client_id: c, client_secret: s}\n`,
    says: /one/,
    setting: 'oidc_providers[1]',
  },
  {
    what: 'metadata of a provider of SAML that are not there',
    settings: "public_baseurl: 'https://a.test/'\nsaml2_config: {sp_config: {metadata: {local: [absent.xml]}}}\n",
    says: /absent\.xml/,
    setting: 'saml2_config.sp_config.metadata.local[0]',
  },
  {
    what: 'a log that cannot be configured',
    settings: 'log_config: absent.yaml\n',
    says: /absent\.yaml/,
    setting: '',
  },
  {
    what: 'a socket whose folder is not there',
    settings: 'listeners: [{path: absent/socket, type: http, resources: [{names: [client]}]}]\n',
    says: /absent/,
    setting: 'listeners[0].path',
  },
  {
    what: 'an address that this machine does not have',
    settings: 'listeners: [{port: 1234, bind_addresses: [192.0.2.1], type: http, resources: [{names: [client]}]}]\n',
    says: /192\.0\.2\.1/,
    setting: 'listeners[0].bind_addresses',
  },
  {
    what: 'a module that fails',
    settings: 'modules: [{module: ./own.mjs}]\n',
    files: module("register() { throw new Error('it is Monday'); }"),
    says: /own.*it is Monday/s,
    setting: undefined,
  },
  {
    what: 'a module whose file fails',
    settings: 'modules: [{module: ./own.mjs}]\n',
    files: { 'own.mjs': "throw new Error('it is Monday');" },
    says: /own.*it is Monday/s,
    setting: undefined,
  },
  {
    what: 'pages of two modules in one place',
    settings: 'modules: [{module: ./own.mjs}, {module: ./own.mjs}]\n',
    files: module("register(api) { api.registerWebResource('/_synapse/client/own', () => new Response('')); }"),
    says: /own/,
    setting: undefined,
  },
];

/** Whatever ends a start for a reason that lies outside of the program ends it with lines for whoever can change that. */
describe('what ends a start', () => {
  let folder: string;

  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'rookery-refusals-'))));
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const usual = async (): Promise<Record<string, string>> => ({
    server_name: 'refuse.test\n',
    report_stats: 'false\n',
    signing_key_path: 'signing.key\n',
    media_store_path: 'media\n',
    listeners: `[{port: ${await freePort()}, ${listener}}]\n`,
    database: '{name: sqlite3, args: {database: homeserver.db}}\n',
    trusted_key_servers: '[]\n',
  });

  const fileOf = async ({ settings, files = {}, folders = [] }: Refusal): Promise<string> => {
    for (const name of folders) mkdirSync(join(folder, name));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const given = new Set(settings.match(/^\w+(?=:)/gm));
    if (given.has('databases')) given.add('database');
    const rest = Object.entries(await usual()).filter(([name]) => !given.has(name));
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(file, rest.map(([name, text]) => `${name}: ${text}`).join('') + settings);
    return file;
  };

  /** As the program does. */
  const errorOfStart = async (file: string): Promise<unknown> => {
    let server: Homeserver | undefined;
    try {
      const config = loadConfig([file]);
      checkParts(config);
      if (config.get('redis.enabled')) checkShareable(config);
      server = Homeserver.create(config, config.isGiven('log_config') ? {} : { logger: new SilentLogger() });
      await server.start();
      return undefined;
    } catch (error) {
      return error;
    } finally {
      await server?.stop();
    }
  };

  const checked = async (file: string): Promise<readonly { setting: string; text: string }[]> => {
    let config: Config;
    try {
      config = loadConfig([file]);
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      return error.problems.map((problem) => ({ setting: problem.setting, text: describeProblem(problem) }));
    }
    const problems = await startProblems(config);
    return problems.map((problem) => ({ setting: problem.setting, text: describeProblem(problem) }));
  };

  it('says which database it is about: one that is opened after another one', async () => {
    const settings =
      'databases:\n  a: {name: psycopg2, data_stores: main}\n  b: {name: psycopg2, data_stores: state, args: {port: 0}}\n';
    const [problem] = await checked(await fileOf({ what: '', settings, says: /./, setting: undefined }));
    expect(problem).toMatchObject({
      setting: 'databases.b',
      text: expect.stringMatching(/databases\.b\.args\.port must be/),
    });
  });

  it.each(refusals)('$what', async (refusal) => {
    const file = await fileOf(refusal);
    const error = await errorOfStart(file);
    expect(error).toBeDefined();
    expect(startupMessage(error) ?? `not for operators: ${(error as Error).stack}`).toMatch(refusal.says);
    expect(startupMessage(error)).toBeDefined();
    const found = await checked(file);
    if (refusal.setting === undefined) expect(found).toEqual([]);
    else {
      expect(found.map(({ setting }) => setting)).toEqual([refusal.setting].flat());
      for (const { text } of found) expect(text).toMatch(refusal.says);
    }
  });
});
