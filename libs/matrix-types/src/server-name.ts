/** A parsed server name. */
export interface ServerNameParts {
  /** DNS name or IP literal, without brackets; as written, case kept. */
  readonly host: string;
  readonly kind: 'dns' | 'ipv4' | 'ipv6';
  /** `undefined` when the name carries no port. */
  readonly port: number | undefined;
}

/** Longest server name, bytes: with one sigil and a colon it must fit into an identifier of 255. */
export const maxServerNameBytes = 230;

const ipv4 = /^\d{1,3}(?:\.\d{1,3}){3}$/;
const dnsName = /^[0-9A-Za-z.-]+$/;
const ipv6 = /^[0-9A-Fa-f:.]{2,45}$/;
const serverName = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(\d{1,5}))?$/;

/**
 * Splits a server name into host and port.
 * @returns `undefined` when the name breaks the grammar
 * @spec appendices#server-name
 */
export function parseServerName(text: string): ServerNameParts | undefined {
  if (text.length === 0 || text.length > maxServerNameBytes) return undefined;
  const match = serverName.exec(text);
  if (match === null) return undefined;
  const [, bracketed, plain, portText] = match;
  const port = portText === undefined ? undefined : Number(portText);
  if (port !== undefined && port > 65_535) return undefined;
  if (bracketed !== undefined) {
    return ipv6.test(bracketed) && bracketed.includes(':') ? { host: bracketed, kind: 'ipv6', port } : undefined;
  }
  if (plain === undefined) return undefined;
  if (ipv4.test(plain)) {
    return plain.split('.').every((part) => Number(part) <= 255) ? { host: plain, kind: 'ipv4', port } : undefined;
  }
  return dnsName.test(plain) ? { host: plain, kind: 'dns', port } : undefined;
}

/**
 * Whether a text is a server name: DNS name, IPv4 address or bracketed IPv6 address, with an optional port.
 * @spec appendices#server-name
 */
export function isValidServerName(text: string): boolean {
  return parseServerName(text) !== undefined;
}
