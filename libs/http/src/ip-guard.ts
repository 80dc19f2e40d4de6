import { BlockList, isIP } from 'node:net';

const alwaysBlocked = ['0.0.0.0/32', '::/128'];

function listOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [network = '', prefix] = range.split('/');
    const family = isIP(network);
    if (family === 0) throw new Error(`'${range}' is not an IP range`);
    const length = prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix);
    list.addSubnet(network, length, family === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}

/** IPv6 prefixes that carry an IPv4 address in their last 32 bits, which the network turns back into that address. */
const translated = listOf(['64:ff9b::/96', '::/96']);

/** The IPv4 address in the last 32 bits of an IPv6 address; `undefined` when it is written in a way we do not take apart. */
function embeddedIpv4(address: string): string | undefined {
  const dotted = /:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  if (dotted !== undefined) return dotted;
  const [head = '', tail] = address.split('%')[0]!.split('::');
  const groups = (part: string): string[] => (part === '' ? [] : part.split(':'));
  const after = tail === undefined ? [] : groups(tail);
  const before = groups(head);
  const all =
    tail === undefined
      ? before
      : [...before, ...new Array<string>(Math.max(0, 8 - before.length - after.length)).fill('0'), ...after];
  if (all.length !== 8) return undefined;
  const high = parseInt(all[6]!, 16);
  const low = parseInt(all[7]!, 16);
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** Decides which addresses outgoing requests may reach, so that nobody makes the server talk to its own network. */
export class IpGuard {
  readonly #blocked: BlockList;
  readonly #allowed: BlockList;
  readonly #always = listOf(alwaysBlocked);

  /**
   * @param blocked ranges that are refused, for example `10.0.0.0/8`
   * @param allowed exceptions, which win; `0.0.0.0` and `::` stay refused
   */
  constructor(blocked: readonly string[], allowed: readonly string[] = []) {
    this.#blocked = listOf(blocked);
    this.#allowed = listOf(allowed);
  }

  /** Whether a connection to the address is allowed. Anything that is not an address is not. */
  allows(address: string): boolean {
    const bare = address.replace(/^\[|\]$/g, '');
    const family = isIP(bare);
    if (family === 0) return false;
    const type = family === 4 ? 'ipv4' : 'ipv6';
    if (this.#always.check(bare, type)) return false;
    if (this.#allowed.check(bare, type)) return true;
    if (this.#blocked.check(bare, type)) return false;
    if (type === 'ipv6' && translated.check(bare, 'ipv6')) {
      const inner = embeddedIpv4(bare);
      return inner !== undefined && this.allows(inner);
    }
    return true;
  }
}
