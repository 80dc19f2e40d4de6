import { stringify } from 'yaml';
import { withoutEffect } from './without-effect.js';

/** What goes into the first settings file. */
export interface GenerateOptions {
  readonly serverName: string;
  /** Folder of the database, the media and the signing key: what the server writes. */
  readonly dataDir: string;
  /** Random secrets; made by the caller from `Ids`. */
  readonly secrets: {
    readonly registrationSharedSecret: string;
    readonly macaroonSecretKey: string;
    readonly formSecret: string;
  };
  /** Default false. */
  readonly reportStats?: boolean;
  readonly port?: number;
  /** Default: only this machine. */
  readonly bindAddresses?: readonly string[];
}

/** A commented settings file for a first run: SQLite, one listener, nothing sent home, registration closed. */
export function generateConfig(options: GenerateOptions): string {
  const value = (one: unknown): string =>
    stringify(one, { version: '1.1', lineWidth: 0, collectionStyle: 'flow' }).trimEnd();
  const folder = options.dataDir.replace(/\/+$/, '');
  return withoutIdleSettings(`# Settings of a Rookery homeserver. docs/operators/configuration.md describes all of them;
# "rookery config check" tells what is wrong with this file without starting the server.

# The part of user and room ids behind the colon. It can never change.
server_name: ${value(options.serverName)}

# Where clients reach the server, when that is not this machine. Needed for mails and single sign-on.
# public_baseurl: ${value(`https://${options.serverName}/`)}

# Behind a reverse proxy that speaks TLS, keep the address and let x_forwarded be true.
listeners:
  - port: ${options.port ?? 8008}
    bind_addresses: ${value(options.bindAddresses ?? ['127.0.0.1'])}
    type: http
    tls: false
    x_forwarded: false
    resources:
      - names: [client, federation]
        compress: false

# SQLite is fine for a try-out and for few users. For more, PostgreSQL:
#   database:
#     name: psycopg2
#     args: { host: localhost, user: rookery, password: "...", dbname: rookery, cp_max: 10 }
database:
  name: sqlite3
  args:
    database: ${value(`${folder}/homeserver.db`)}

media_store_path: ${value(`${folder}/media_store`)}

# Made at the first start. Whoever has it can speak as this server: keep it, and keep it secret.
signing_key_path: ${value(`${folder}/${options.serverName.replace(/[^A-Za-z0-9.-]/g, '_')}.signing.key`)}

# Holds the process id while the server runs: "rookery reload" finds it there.
pid_file: ${value(`${folder}/homeserver.pid`)}

# Servers asked for the keys of servers that do not answer.
trusted_key_servers:
  - server_name: matrix.org

# Whether to send anonymous usage numbers.
report_stats: ${options.reportStats ?? false}

# Nobody can register by themselves; "rookery register-user" makes accounts. Before opening it, see
# registrations_require_3pid, enable_registration_captcha and registration_requires_token.
enable_registration: false

# Whoever asks for a mail is not told whether an address has an account here; its owner is, by mail.
request_token_inhibit_3pid_errors: true

# Random, and secret.
registration_shared_secret: ${value(options.secrets.registrationSharedSecret)}
macaroon_secret_key: ${value(options.secrets.macaroonSecretKey)}
form_secret: ${value(options.secrets.formSecret)}

# Modules are npm packages, found from the folder of this file: "rookery module add NAME" installs one.
# modules:
#   - module: '@rookery-examples/word-filter'
#     config: { words: [spam] }
`);
}

/** Has no default: the operator decides. */
const mustBeSaid = 'report_stats';

/** Comments out what this version does not use yet, so that a new file draws no warnings; the values stay for later. */
function withoutIdleSettings(text: string): string {
  let isIdle = false;
  return text
    .split('\n')
    .map((line) => {
      const [, name] = /^([a-z_0-9]+):/.exec(line) ?? [];
      if (name !== undefined) isIdle = name !== mustBeSaid && (withoutEffect as ReadonlySet<string>).has(name);
      else if (!/^\s+\S/.test(line)) isIdle = false;
      return isIdle ? `# ${line}` : line;
    })
    .join('\n');
}
