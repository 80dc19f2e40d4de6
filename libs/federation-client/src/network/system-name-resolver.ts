import type { Clock } from '@rookery/platform';
import { lookup, Resolver } from 'node:dns/promises';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { type Endpoint, NameResolver, type SrvRecord } from './name-resolver.js';

/** What DNS says of a name that is not there. */
const absent = new Set(['ENOTFOUND', 'ENODATA']);
/** How often the file of hosts is looked at, milliseconds. */
const hostsCheckMs = 10_000;
const maxHostsFileBytes = 4_194_304;

/**
 * Names as the system knows them. The file of hosts comes first; then DNS, asked without blocking a thread, so that dead
 * names hold up nobody; what DNS does not know goes to the system's own look-up, which knows search domains and more.
 */
export class SystemNameResolver extends NameResolver {
  readonly #dns = new Resolver({ timeout: 3_000, tries: 2 });
  #hosts: ReadonlyMap<string, readonly string[]> = new Map();
  #hostsVersion = '';
  #hostsCheckedMs = -Infinity;

  /** @param hostsFile where the system's own names are */
  constructor(
    private readonly clock: Clock,
    private readonly hostsFile = process.platform === 'win32' ? '' : '/etc/hosts',
  ) {
    super();
  }

  async srv(name: string): Promise<readonly SrvRecord[]> {
    try {
      return await this.#dns.resolveSrv(name);
    } catch (error) {
      if (isAbsent(error)) return [];
      throw error;
    }
  }

  async endpoints(host: string, port: number): Promise<readonly Endpoint[]> {
    const listed = (await this.#ownHosts()).get(host.toLowerCase());
    const addresses = listed ?? (await this.#query(host)) ?? (await systemLookup(host));
    return addresses.map((address) => ({ address, port }));
  }

  async #query(host: string): Promise<readonly string[] | undefined> {
    const answers = await Promise.allSettled([this.#dns.resolve4(host), this.#dns.resolve6(host)]);
    const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
    if (found.length > 0) return found;
    const failure = answers.find((answer) => answer.status === 'rejected' && !isAbsent(answer.reason));
    if (failure?.status === 'rejected') throw failure.reason;
    return undefined;
  }

  /** Names of the file of hosts, read again when it changed. */
  async #ownHosts(): Promise<ReadonlyMap<string, readonly string[]>> {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.#hostsCheckedMs < hostsCheckMs || this.hostsFile === '') return this.#hosts;
    this.#hostsCheckedMs = nowMs;
    try {
      const { mtimeMs, size, ino } = await stat(this.hostsFile);
      const version = `${mtimeMs} ${size} ${ino}`;
      if (version !== this.#hostsVersion && size <= maxHostsFileBytes) {
        this.#hosts = parseHosts(await readFile(this.hostsFile, 'utf8'));
        this.#hostsVersion = version;
      }
    } catch {
      this.#hosts = new Map(); // a system without such a file
    }
    return this.#hosts;
  }
}

const isAbsent = (error: unknown): boolean => absent.has((error as NodeJS.ErrnoException).code ?? '');

async function systemLookup(host: string): Promise<readonly string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
}

function parseHosts(text: string): Map<string, string[]> {
  const hosts = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (isIP(address) === 0) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      const list = hosts.get(key);
      if (list === undefined) hosts.set(key, [address]);
      else if (!list.includes(address)) list.push(address);
    }
  }
  return hosts;
}
