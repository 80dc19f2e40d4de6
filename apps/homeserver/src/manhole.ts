import { timingSafeEqual } from 'node:crypto';
import { chmodSync, existsSync, lstatSync, readFileSync, unlinkSync } from 'node:fs';
import { createServer, isIPv6, type Server, type Socket, SocketAddress } from 'node:net';
import { endianness } from 'node:os';
import { createInterface } from 'node:readline';
import type * as Repls from 'node:repl';
import type { Config, Logger } from '@rookery/platform';
import { StartupError } from './startup-error.js';

/** Where a debug shell listens: a port of a loopback address, or a socket in the file system. */
export interface ManholeAddress {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string;
}

export interface ManholeOptions {
  readonly addresses: readonly ManholeAddress[];
  readonly username: string;
  readonly password: string;
  /** What the shell knows by name. */
  readonly names: () => Readonly<Record<string, unknown>>;
}

const loginMs = 30_000;
const maxShells = 4;
/** Whether only programs of this machine reach an address. */
export const isLoopback = (host: string): boolean => host === 'localhost' || host === '::1' || /^127\./.test(host);

/**
 * A shell into the running server, for its operator: JavaScript with `await`, beside whatever the server does. Only for processes
 * of the user who runs the server, and root; on a port, name and password are asked for as well. Whoever gets in may do anything
 * that the server may.
 */
export class Manhole {
  readonly #servers: Server[] = [];
  readonly #open = new Set<Socket>();

  constructor(
    private readonly options: ManholeOptions,
    private readonly logger: Logger,
  ) {}

  /** @throws Error for an address that others could reach, or that is taken */
  async start(): Promise<void> {
    // Not loaded where there is no shell: it changes how every event is emitted, for `domain`, and brings a parser of JavaScript.
    const repls = await import('node:repl');
    for (const address of this.options.addresses) {
      const { host = '127.0.0.1', port, path } = address;
      if (path === undefined && !isLoopback(host))
        throw new StartupError(
          `A manhole listens on loopback addresses only, not on ${host}: whoever reaches it owns the server`,
        );
      // What a killed server left.
      if (path !== undefined && existsSync(path) && lstatSync(path).isSocket()) unlinkSync(path);
      const server = createServer((socket) => void this.#serve(socket, path === undefined, repls));
      if (path !== undefined && (process.umask() & 0o022) !== 0o022)
        throw new StartupError(`The umask would let others open the manhole ${path}: set it to 022 or stricter`);
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject).listen(path === undefined ? { host, port } : { path }, resolve);
      });
      if (path !== undefined) chmodSync(path, 0o600);
      this.#servers.push(server);
      this.logger.warn('A manhole is open: whoever gets in may do anything that the server may', { host, port, path });
    }
  }

  async stop(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  async #serve(socket: Socket, isPort: boolean, repls: typeof Repls): Promise<void> {
    socket.on('error', () => socket.destroy());
    if (this.#open.size >= maxShells || (isPort && !isOwnUser(socket))) {
      this.logger.warn('A manhole turned somebody away', { remotePort: socket.remotePort });
      socket.destroy();
      return;
    }
    this.#open.add(socket);
    socket.on('close', () => this.#open.delete(socket));
    if (isPort && !(await this.#login(socket))) {
      this.logger.warn('A manhole was given a wrong name or password', { remotePort: socket.remotePort });
      socket.end('Wrong name or password\r\n');
      return;
    }
    this.logger.warn('Somebody is in a manhole', { remotePort: socket.remotePort });
    socket.write(
      'Rookery. There are server, config, modules and database: await database.query("SELECT ..."); .exit leaves.\r\n',
    );
    const repl = repls.start({ prompt: '> ', input: socket, output: socket, terminal: false, useGlobal: false });
    Object.assign(repl.context, this.options.names());
    repl.on('exit', () => socket.end());
  }

  async #login(socket: Socket): Promise<boolean> {
    const { username, password } = this.options;
    const late = setTimeout(() => socket.destroy(), loginMs).unref();
    const lines = createInterface({ input: socket, terminal: false });
    const next = lines[Symbol.asyncIterator]();
    try {
      socket.write('Name: ');
      const name = await next.next();
      socket.write('Password: ');
      const given = await next.next();
      const isName = isSame(String(name.value ?? ''), username);
      return isSame(String(given.value ?? ''), password) && isName;
    } finally {
      clearTimeout(late);
      lines.close();
      socket.resume();
    }
  }
}

function isSame(given: string, wanted: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(wanted)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** The ends of a TCP connection, as a process sees them. */
export type ConnectionEnds = Pick<Socket, 'localAddress' | 'localPort' | 'remoteAddress' | 'remotePort'>;

/** Where Linux lists connections. Those of the process itself: what is below `/proc/net` alone a hardened unit hides (`ProcSubset=pid`). */
const connectionTables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/**
 * Whether the other end of a connection of this machine belongs to the user of this process, or to root. Where the system does
 * not tell (outside Linux, or no table can be read), the password decides.
 * @param tables files in the form of `/proc/net/tcp`
 */
export function isOwnUser(
  { localAddress, localPort = 0, remoteAddress, remotePort = 0 }: ConnectionEnds,
  tables: readonly string[] = connectionTables,
): boolean {
  if (process.platform !== 'linux' || process.getuid === undefined) return true;
  // It has ended already.
  if (localAddress === undefined || remoteAddress === undefined) return true;
  const [here, there] = [placeOf(localAddress, localPort), placeOf(remoteAddress, remotePort)];
  let isTold = false;
  for (const file of tables) {
    let table: string;
    try {
      table = readFileSync(file, 'utf8');
    } catch {
      continue;
    }
    isTold = true;
    for (const line of table.trim().split('\n').slice(1)) {
      const [, local = '', remote = '', , , , , uid] = line.trim().split(/\s+/);
      if (listedPlace(local) === there && listedPlace(remote) === here)
        return Number(uid) === process.getuid() || uid === '0';
    }
  }
  return !isTold;
}

/** One name for each address and port, whichever way a program has written an IPv4 address. */
function placeOf(address: string, port: number): string {
  const bare = address.split('%')[0]!;
  const { address: plain } = new SocketAddress({ address: bare, family: isIPv6(bare) ? 'ipv6' : 'ipv4' });
  return `${plain.replace(/^::ffff:(?=.*\.)/, '')} ${port}`;
}

/** The same of what a table holds: an address as words of the machine in hexadecimal digits, and a port. */
function listedPlace(text: string): string {
  const [words = '', port = ''] = text.split(':');
  const bytes = Buffer.from(words, 'hex');
  if (endianness() === 'LE') bytes.swap32();
  const address = bytes.length === 4 ? bytes.join('.') : bytes.toString('hex').replace(/(....)(?!$)/g, '$1:');
  return placeOf(address, parseInt(port, 16));
}

/** The shells that the settings ask for; `undefined` for none. @param names what they know by name */
export function manholeOf(config: Config, logger: Logger, names: ManholeOptions['names']): Manhole | undefined {
  const isWorker = config.get('worker_app') !== undefined;
  const port = isWorker ? config.get('worker_manhole') : config.get('manhole');
  const listeners = config.get(isWorker ? 'worker_listeners' : 'listeners').filter(({ type }) => type === 'manhole');
  const addresses: ManholeAddress[] = [
    ...(port === undefined ? [] : [{ port }]),
    ...listeners.flatMap(({ path, port: own, bind_addresses: hosts }): ManholeAddress[] =>
      path === undefined ? (hosts ?? ['127.0.0.1']).map((host) => ({ host, port: own ?? 0 })) : [{ path }],
    ),
  ];
  const { username, password } = config.get('manhole_settings');
  return addresses.length === 0 ? undefined : new Manhole({ addresses, username, password, names }, logger);
}
