import { freePort, makeTestAuthority } from '@rookery/testing';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { type DatabaseKind, emptyDatabase, unlimited } from '../support/server-process.js';

const hourMs = 3_600_000;
const startLimitMs = 90_000;
const wide = { per_second: 100_000, burst_count: 100_000 };

/** Both servers give up soon and try again soon, so that a test of faults does not wait for minutes. */
const impatient = {
  client_timeout: '10s',
  max_short_retries: 1,
  max_short_retry_delay: '1s',
  max_long_retries: 3,
  max_long_retry_delay: '2s',
  destination_min_retry_interval: '1s',
  destination_max_retry_interval: '5s',
};

/** Moves the clock of a Node.js process: loaded before the program. */
const nodeClock = (aheadMs: number): string =>
  `data:text/javascript,${encodeURIComponent(
    `const now=Date.now,Real=Date;globalThis.Date=class extends Real{constructor(...a){super(...(a.length?a:[now()+${aheadMs}]))}static now(){return now()+${aheadMs}}};`,
  )}`;

/** The same for Python, which then runs the program in its place. */
const pythonStart = `
import os, runpy, sys, time
real, ahead = time.time, float(os.environ["AHEAD_S"])
time.time = lambda: real() + ahead
sys.argv[0] = "synapse.app.homeserver"
runpy.run_module("synapse.app.homeserver", run_name="__main__", alter_sys=True)
`;

/** A server of the federation: a program with a name, a certificate and a folder of its own, that is killed and started again. */
export class Peer {
  #child: ChildProcess | undefined;
  #output = '';
  #aheadMs = 0;

  constructor(
    readonly kind: 'rookery' | 'synapse',
    /** The server's name: host and port of its federation listener. */
    readonly name: string,
    /** Where its clients ask. */
    readonly baseUrl: string,
    readonly folder: string,
    private readonly command: (aheadMs: number) => { file: string; args: string[]; env: NodeJS.ProcessEnv },
    private readonly dropDatabase: () => Promise<void>,
  ) {}

  /** The end of what it printed. */
  get output(): string {
    return this.#output;
  }

  /** Starts it and waits until it answers. @throws Error with its output when it does not */
  async start(): Promise<void> {
    const { file, args, env } = this.command(this.#aheadMs);
    const child = spawn(file, args, { cwd: this.folder, env });
    this.#child = child;
    const keep = (data: Buffer): void => {
      this.#output = (this.#output + data.toString()).slice(-20_000);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const end = performance.now() + startLimitMs;
    while (performance.now() < end) {
      if (child.exitCode !== null) throw new Error(`${this.kind} ended with ${child.exitCode}:\n${this.#output}`);
      const answer = await fetch(`${this.baseUrl}/_matrix/client/versions`).catch(() => undefined);
      if (answer?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`${this.kind} does not answer:\n${this.#output}`);
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
  }

  /** It does not answer, and holds its connections: neither gone nor there. */
  pause(): void {
    this.#child?.kill('SIGSTOP');
  }
  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  /** From its next start on its clock is an hour later than it was. */
  moveClock(byMs = hourMs): void {
    this.#aheadMs += byMs;
  }

  async remove(): Promise<void> {
    await this.stop('SIGKILL');
    await this.dropDatabase();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A homeserver of this project and one of another make in one federation, with names and certificates, on loopback. */
export class Federation {
  private constructor(
    readonly authority: ReturnType<typeof makeTestAuthority>,
    readonly rookery: Peer,
    readonly synapse: Peer,
  ) {}

  static async start(database: DatabaseKind): Promise<Federation> {
    const authority = makeTestAuthority();
    const rookery = await preparePeer('rookery', authority, database);
    const federation = new Federation(authority, rookery, await preparePeer('synapse', authority));
    await Promise.all([federation.rookery.start(), federation.synapse.start()]);
    return federation;
  }

  /** The two, this project's first, then the other way round. */
  get pairs(): readonly (readonly [Peer, Peer])[] {
    return [
      [this.rookery, this.synapse],
      [this.synapse, this.rookery],
    ];
  }

  async remove(): Promise<void> {
    await Promise.all([this.rookery.remove(), this.synapse.remove()]);
  }
}

/** A server that has a name, settings and an empty database, and is yet to be started; the other make's is SQLite. */
export function preparePeer(
  kind: Peer['kind'],
  authority: ReturnType<typeof makeTestAuthority>,
  database: DatabaseKind = 'sqlite',
): Promise<Peer> {
  return kind === 'rookery' ? prepareRookery(authority, database) : prepareSynapse(authority);
}

/** By which an administrator's account is made at either. */
export const registrationSecret = 'a shared secret for tests';

interface Place {
  readonly folder: string;
  readonly port: number;
  readonly name: string;
  readonly settings: object;
}

/** What both programs understand alike. */
async function place(authority: ReturnType<typeof makeTestAuthority>, kind: string): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), `interop-${kind}-`));
  const [port, tlsPort] = [await freePort(), await freePort()];
  const { cert, key } = authority.issue(['localhost', '127.0.0.1']);
  await writeFile(join(folder, 'ca.pem'), authority.cert);
  await writeFile(join(folder, 'tls.cert'), cert);
  await writeFile(join(folder, 'tls.key'), key);
  const listener = { bind_addresses: ['127.0.0.1'], type: 'http', x_forwarded: false };
  const settings = {
    server_name: `localhost:${tlsPort}`,
    public_baseurl: `http://127.0.0.1:${port}/`,
    report_stats: false,
    signing_key_path: join(folder, 'signing.key'),
    media_store_path: join(folder, 'media'),
    trusted_key_servers: [],
    registration_shared_secret: registrationSecret,
    macaroon_secret_key: 'macaroons',
    form_secret: 'forms',
    enable_registration: true,
    enable_registration_without_verification: true,
    bcrypt_rounds: 4,
    tls_certificate_path: join(folder, 'tls.cert'),
    tls_private_key_path: join(folder, 'tls.key'),
    federation_custom_ca_list: [join(folder, 'ca.pem')],
    ip_range_blacklist: [],
    federation_ip_range_blacklist: [],
    allow_public_rooms_over_federation: true,
    allow_device_name_lookup_over_federation: true,
    room_list_publication_rules: [{ action: 'allow' }],
    presence: { enabled: true },
    federation: impatient,
    listeners: [
      { ...listener, port, tls: false, resources: [{ names: ['client'], compress: false }] },
      { ...listener, port: tlsPort, tls: true, resources: [{ names: ['federation'], compress: false }] },
    ],
    ...unlimited,
    rc_3pid_validation: wide,
    rc_third_party_invite: wide,
    rc_presence: { per_user: wide },
    rc_federation: { window_size: 1000, sleep_limit: 100_000, sleep_delay: 1, reject_limit: 100_000, concurrent: 100 },
  };
  return { folder, port, name: `localhost:${tlsPort}`, settings };
}

async function prepareRookery(authority: ReturnType<typeof makeTestAuthority>, database: DatabaseKind): Promise<Peer> {
  const { folder, port, name, settings } = await place(authority, 'rookery');
  const { section, drop } = await emptyDatabase(database, folder);
  const config = join(folder, 'homeserver.yaml');
  await writeFile(config, stringify({ ...settings, database: section }));
  const main = join(process.cwd(), 'apps', 'homeserver', 'dist', 'bundle', 'main.js');
  return new Peer(
    'rookery',
    name,
    `http://127.0.0.1:${port}`,
    folder,
    (aheadMs) => ({
      file: process.execPath,
      args: [main, '--config', config],
      env: {
        ...process.env,
        NODE_OPTIONS: aheadMs === 0 ? '' : `--import=${nodeClock(aheadMs)}`,
        NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'),
      },
    }),
    drop,
  );
}

async function prepareSynapse(authority: ReturnType<typeof makeTestAuthority>): Promise<Peer> {
  const python = process.env['INTEROP_PYTHON'];
  if (python === undefined) throw new Error('INTEROP_PYTHON is not set: run the tests with npm run test:interop');
  const { folder, port, name, settings } = await place(authority, 'synapse');
  const config = join(folder, 'homeserver.yaml');
  const log = join(folder, 'log.yaml');
  // It makes its key only when it makes its settings.
  const seed = randomBytes(32).toString('base64').replaceAll('=', '');
  await writeFile(join(folder, 'signing.key'), `ed25519 a_interop ${seed}\n`);
  await writeFile(
    log,
    stringify({
      version: 1,
      formatters: { plain: { format: '%(asctime)s %(name)s %(levelname)s %(request)s %(message)s' } },
      handlers: { console: { class: 'logging.StreamHandler', formatter: 'plain' } },
      root: { level: 'WARNING', handlers: ['console'] },
    }),
  );
  await writeFile(
    config,
    stringify({
      ...settings,
      pid_file: join(folder, 'synapse.pid'),
      log_config: log,
      database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } },
      suppress_key_server_warning: true,
    }),
  );
  return new Peer(
    'synapse',
    name,
    `http://127.0.0.1:${port}`,
    folder,
    (aheadMs) => ({
      file: python,
      args: ['-c', pythonStart, '--config-path', config],
      env: {
        PATH: process.env['PATH'] ?? '',
        AHEAD_S: String(aheadMs / 1000),
        SSL_CERT_FILE: join(folder, 'ca.pem'),
      },
    }),
    () => Promise.resolve(),
  );
}
