import { MatrixError } from '@rookery/matrix-types';

/** Whether an address leads to this machine: nobody sits in between. */
export const isLoopback = (url: string): boolean =>
  /^http:\/\/(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(\/|$)/i.test(url);

const maxLength = 2_000;
/** Addresses that would run in the page that leads to them. */
const dangerous = new Set([
  'javascript:',
  'data:',
  'vbscript:',
  'blob:',
  'file:',
  'about:',
  'filesystem:',
  'view-source:',
]);

/**
 * The address at which a client waits for its login token; any scheme that does not run in our page.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function checkClientAddress(url: string): URL {
  const target = url.length <= maxLength && url.isWellFormed() && URL.canParse(url) ? new URL(url) : undefined;
  if (!target || dangerous.has(target.protocol)) throw MatrixError.invalidParam('No login can lead to this address');
  return target;
}

/**
 * Whether an address begins as one of those that are trusted, as browsers understand both: a path may lead out of itself. One that names
 * a host only does not trust hosts whose names begin like it.
 */
export function isTrustedClient(url: string, beginnings: readonly string[]): boolean {
  const target = understood(url);
  return beginnings.some((beginning) => target.startsWith(understood(beginning)));
}

const understood = (address: string): string => (URL.canParse(address) ? new URL(address).href : address);

/** The part of an address that tells people where it leads. */
export const displayedAddress = (url: string): string => url.split(/[?#]/, 1)[0]!;
