import { isIPv6 } from 'node:net';

/** Who has one IPv6 address has all of its network: the first four groups stand for it. Anything else stands for itself. */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [head = '', tail] = address.split('::');
  if (tail === undefined) return address.split(':', 4).join(':');
  const before = head.split(':');
  return [
    ...before,
    ...new Array<string>(Math.max(0, 8 - before.length - tail.split(':').length)).fill('0'),
    ...tail.split(':'),
  ]
    .slice(0, 4)
    .join(':');
}
