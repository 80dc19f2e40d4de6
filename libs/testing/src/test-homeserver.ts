import { createHmac } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { DialectName } from '@rookery/database';
import type { Homeserver, HomeserverOverrides, ProcessPlace } from '@rookery/homeserver';
import { Config, SilentLogger } from '@rookery/platform';
import { FakeNames } from './fake-names.js';
import { freePort } from './free-port.js';
import { whereFree } from './listening.js';
import { MemoryProcesses } from './memory-processes.js';
import { makeMigratedPlace } from './migrated-places.js';
import { temporaryFolder } from './temporary-folder.js';
import { makeTestDatabasePlace, testPostgresUrl } from './test-database.js';

/** What a test wants to be different. */
export interface TestHomeserverOptions extends HomeserverOverrides {
  /** Default `sqlite`: a temporary file. */
  readonly database?: DialectName;
  /** State gets a database of its own. */
  readonly stateApart?: boolean;
  /** Settings by their names in `homeserver.yaml`; they replace the defaults of tests. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** What requests are made with: a `fetch` that checks exchanges, for example. */
  readonly fetch?: typeof fetch;
  /**
   * How many processes the server has: each request goes to one of them by chance. Needs PostgreSQL. Default 1, or what
   * `ROOKERY_TEST_PROCESSES` says where the database is PostgreSQL.
   */
  readonly processes?: number;
  /** Where relative names of modules start. Default: the current folder. */
  readonly configDir?: string;
}

/** An account with a session. */
export interface TestUser {
  readonly userId: string;
  readonly accessToken: string;
  readonly deviceId: string;
  /** A request as this user; see {@link TestHomeserver.request}. */
  request<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<TestResponse<T>>;
}

/** An answer with its body read as JSON. */
export interface TestResponse<T> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

/** A real server in this process, on a free port of the loopback address. */
export interface TestHomeserver {
  /** The process that writes. */
  readonly server: Homeserver;
  /** All processes, that one first. */
  readonly servers: readonly Homeserver[];
  readonly baseUrl: string;
  /** Sends JSON and reads JSON. `path` starts with `/`; `/_matrix/client/v3` may be left out: `/sync`. */
  request<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    accessToken?: string,
  ): Promise<TestResponse<T>>;
  /** Registers through the client API. @throws Error when that is refused */
  registerUser(username: string, password?: string): Promise<TestUser>;
  /** Makes an administrator, whatever the settings say of registration. @throws Error when that is refused */
  registerAdministrator(username: string, password?: string): Promise<TestUser>;
  /** Stops it and starts it again on the same data and port, with some settings set otherwise from then on. */
  restart(changed?: Readonly<Record<string, unknown>>): Promise<void>;
  /** Stops it and removes its data. */
  stop(): Promise<void>;
}

const wide = { per_second: 100_000, burst_count: 100_000 };

const defaults: Readonly<Record<string, unknown>> = {
  server_name: 'rookery.test',
  report_stats: false,
  enable_registration: true,
  enable_registration_without_verification: true,
  registration_shared_secret: 'shared',
  macaroon_secret_key: 'macaroons',
  form_secret: 'forms',
  bcrypt_rounds: 4,
  rc_message: wide,
  rc_registration: wide,
  rc_login: { address: wide, account: wide, failed_attempts: wide },
  rc_joins: { local: wide, remote: wide },
  rc_joins_per_room: wide,
  rc_invites: { per_room: wide, per_user: wide, per_issuer: wide },
  rc_room_creation: wide,
};

/**
 * Starts a homeserver for a test: the real program with real storage and real HTTP, only in this process.
 *
 * ```ts
 * const homeserver = await createTestHomeserver({ settings: { modules: [{ module: './dist/index.js', config: {} }] } });
 * const alice = await homeserver.registerUser('alice');
 * expect((await alice.request('POST', '/createRoom', {})).status).toBe(200);
 * await homeserver.stop();
 * ```
 */
export async function createTestHomeserver(options: TestHomeserverOptions = {}): Promise<TestHomeserver> {
  const {
    database = 'sqlite',
    stateApart = false,
    settings = {},
    configDir = process.cwd(),
    fetch: send = fetch,
    ...more
  } = options;
  const { processes = database === 'postgres' ? Number(process.env['ROOKERY_TEST_PROCESSES'] ?? 1) : 1, ...overrides } =
    more;
  const folder = await temporaryFolder('rookery-');
  const place = await makeMigratedPlace(database);
  const statePlace = stateApart ? await makeTestDatabasePlace(database) : undefined;
  const port = await freePort();
  const changed: Record<string, unknown> = {};
  /** As they are now: a test may have changed what it gave. */
  const allSettings = (): Readonly<Record<string, unknown>> => ({ ...defaults, ...settings, ...changed });
  const startOne = async (port: number, among?: ProcessPlace): Promise<Homeserver> => {
    const all = allSettings();
    const config = Config.fromObject(
      {
        signing_key_path: join(folder, 'signing.key'),
        media_store_path: join(folder, 'media'),
        ...(statePlace === undefined
          ? { database: databaseSection(place.options) }
          : {
              databases: {
                main: { ...databaseSection(place.options), data_stores: ['main'] },
                state: { ...databaseSection(statePlace.options), data_stores: ['state'] },
              },
            }),
        listeners: [
          {
            port,
            bind_addresses: ['127.0.0.1'],
            type: 'http',
            resources: [{ names: ['client', 'consent', 'federation'] }],
          },
        ],
        ...all,
        ...(among && port !== ports[0] && Array.isArray(all['listeners'])
          ? { listeners: await onPortsOfTheirOwn(all['listeners'] as object[], port) }
          : {}),
      },
      { configDir },
    );
    // Loaded late, so that specs which need a database only do not load the whole server.
    const { Homeserver } = await import('@rookery/homeserver');
    return whereFree(async () => {
      // No test asks the world for names.
      const server = Homeserver.create(config, {
        ...{ logger: new SilentLogger(), nameResolver: new FakeNames() },
        ...overrides,
        ...(among && { place: among }),
      });
      await server.start();
      return server;
    });
  };
  const start = async (): Promise<Homeserver[]> => {
    if (processes === 1) return [await startOne(port)];
    const network = new MemoryProcesses();
    const started: Homeserver[] = [];
    for (let index = 0; index < processes; index++) {
      const name = index === 0 ? 'main' : `process${index}`;
      const place: ProcessPlace = {
        ...{ name, writer: 'main', secret: 'known to the processes', listen: { host: '127.0.0.1', port: 0 } },
        ...network.connect(name),
        writerAddress: () => Promise.resolve(started[0]?.fellowsAddress),
      };
      started.push(await startOne(ports[index]!, place));
    }
    return started;
  };
  const ports = [port];
  while (ports.length < processes) ports.push(await freePort());
  let servers = await start();
  const baseUrls = servers.map((one) => `http://127.0.0.1:${one.addresses[0]?.port}`);
  const [baseUrl = ''] = baseUrls;

  const request = async <T>(
    method: string,
    path: string,
    body?: unknown,
    accessToken?: string,
  ): Promise<TestResponse<T>> => {
    const url =
      baseUrls[Math.floor(Math.random() * baseUrls.length)]! +
      (path.startsWith('/_') || path.startsWith('/.') || path === '/health' ? path : `/_matrix/client/v3${path}`);
    const response = await send(url, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(accessToken === undefined ? {} : { authorization: `Bearer ${accessToken}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const isJson = (response.headers.get('content-type') ?? '').startsWith('application/json');
    return { status: response.status, headers: response.headers, body: (isJson ? JSON.parse(text) : text) as T };
  };

  const userOf = (body: Readonly<Record<string, string>>): TestUser => {
    const accessToken = body['access_token'] ?? '';
    return {
      userId: body['user_id'] ?? '',
      accessToken,
      deviceId: body['device_id'] ?? '',
      request: (method, path, content) => request(method, path, content, accessToken),
    };
  };

  return {
    get server() {
      return servers[0]!;
    },
    get servers() {
      return servers;
    },
    baseUrl,
    request,
    async registerUser(username, password = `password of ${username}`) {
      const { status, body } = await request<Record<string, string>>('POST', '/register', {
        username,
        password,
        auth: { type: 'm.login.dummy' },
      });
      if (status !== 200) throw new Error(`Registration of ${username} was refused: ${JSON.stringify(body)}`);
      return userOf(body);
    },
    async registerAdministrator(username, password = `password of ${username}`) {
      const path = '/_synapse/admin/v1/register';
      const { body: begun } = await request<{ nonce: string }>('GET', path);
      const { nonce } = begun;
      const signed = [nonce, username, password, 'admin'].join('\0');
      const mac = createHmac('sha1', String(allSettings()['registration_shared_secret'])).update(signed).digest('hex');
      const account = { nonce, mac, username, password, admin: true };
      const { status, body } = await request<Record<string, string>>('POST', path, account);
      if (status !== 200) throw new Error(`The administrator ${username} was refused: ${JSON.stringify(body)}`);
      return userOf(body);
    },
    async restart(otherwise = {}) {
      Object.assign(changed, otherwise);
      for (const one of servers.toReversed()) await one.stop();
      servers = await start();
    },
    async stop() {
      for (const one of servers.toReversed()) await one.stop();
      await place.remove();
      await statePlace?.remove();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Listeners of another process: clients find the first, nobody the others. */
const onPortsOfTheirOwn = (listeners: readonly object[], port: number): Promise<object[]> =>
  Promise.all(
    listeners.map(async (listener, index) =>
      'port' in listener ? { ...listener, port: index === 0 ? port : await freePort() } : listener,
    ),
  );

/** The settings' section for a place. */
function databaseSection(options: Awaited<ReturnType<typeof makeTestDatabasePlace>>['options']): object {
  if (options.name === 'sqlite3') return { name: 'sqlite3', args: { database: options.path } };
  const url = new URL(testPostgresUrl());
  return {
    name: 'psycopg2',
    args: { host: url.hostname, port: Number(url.port), user: url.username, password: url.password, ...options.args },
  };
}
