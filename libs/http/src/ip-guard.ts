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

/** Where IPv6 addresses carry IPv4 addresses that somebody on the way turns them back into: 16-bit groups, from the first. */
const carriers: readonly { readonly prefix: BlockList; readonly at: readonly number[]; readonly inverted?: boolean }[] =
  [
    // NAT64, the well-known prefix and the one for local use (RFC 6052, 8215), IPv4-compatible and IPv4-translated addresses.
    { prefix: listOf(['64:ff9b::/96', '64:ff9b:1::/48', '::/96', '::ffff:0:0:0/96']), at: [6] },
    // 6to4 (RFC 3056).
    { prefix: listOf(['2002::/16']), at: [1] },
    // Teredo (RFC 4380): its server, and the client with its bits turned round.
    { prefix: listOf(['2001::/32']), at: [2] },
    { prefix: listOf(['2001::/32']), at: [6], inverted: true },
  ];

/** The eight groups of an IPv6 address. */
function groupsOf(address: string): number[] {
  const bare = address.split('%')[0]!.replace(/\d+\.\d+\.\d+\.\d+$/, (dotted) => {
    const [a = 0, b = 0, c = 0, d = 0] = dotted.split('.').map(Number);
    return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  });
  const [head = '', tail] = bare.split('::');
  const numbers = (part: string): number[] => (part === '' ? [] : part.split(':').map((group) => parseInt(group, 16)));
  const [before, after] = [numbers(head), tail === undefined ? [] : numbers(tail)];
  return [...before, ...new Array<number>(Math.max(0, 8 - before.length - after.length)).fill(0), ...after];
}

/** IPv4 addresses inside of an IPv6 address to which a packet may go in the end. */
function embeddedIpv4(address: string): string[] {
  const groups = groupsOf(address);
  const at = (index: number, inverted = false): string => {
    const [high, low] = [groups[index]!, groups[index + 1]!].map((group) => (inverted ? group ^ 0xffff : group)) as [
      number,
      number,
    ];
    return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  };
  const found = carriers.flatMap(({ prefix, at: places, inverted }) =>
    prefix.check(address.split('%')[0]!, 'ipv6') ? places.map((place) => at(place, inverted)) : [],
  );
  // ISATAP (RFC 5214) tells itself by its second half, under any prefix.
  if ((groups[4] === 0 || groups[4] === 0x200) && groups[5] === 0x5efe) found.push(at(6));
  return found;
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
    return type === 'ipv4' || embeddedIpv4(bare).every((inner) => this.allows(inner));
  }
}
