import { canonicalJson, type SigningKey } from '@rookery/events';

/** What an `X-Matrix` header says. */
export interface RequestCredentials {
  readonly origin: string;
  /** `undefined` from servers that do not know it yet. */
  readonly destination: string | undefined;
  readonly keyId: string;
  /** Base64. */
  readonly signature: string;
}

/** What all `X-Matrix` headers of a request say: a server sends one for each of its keys. */
export interface RequestSignatures extends Pick<RequestCredentials, 'origin' | 'destination'> {
  /** One at least. */
  readonly signatures: readonly Pick<RequestCredentials, 'keyId' | 'signature'>[];
}

/** The parts of a request that its signature covers. */
export interface SignedRequestParts {
  readonly method: string;
  /** Path with query, percent-encoded as it is sent. */
  readonly uri: string;
  readonly origin: string;
  readonly destination: string | undefined;
  /** The body as canonical JSON; `undefined` when there is none. */
  readonly canonicalContent: string | undefined;
}

/** Longest header that is read, characters. */
const maxHeaderLength = 4_096;
/** Most headers of one request that are read: one for each key with which its server signs. */
const maxHeaders = 4;
const scheme = /^X-Matrix(?= |$)/i;

/**
 * The text that is signed: canonical JSON of the request.
 * @spec server-server-api#request-authentication
 */
export function signedRequestText(parts: SignedRequestParts): string {
  const { canonicalContent, destination } = parts;
  // Keys in canonical order; the body may be large and has its canonical form already.
  const content = canonicalContent === undefined ? '' : `"content":${canonicalContent},`;
  const target = destination === undefined ? '' : `"destination":${canonicalJson(destination)},`;
  return (
    `{${content}${target}"method":${canonicalJson(parts.method)},` +
    `"origin":${canonicalJson(parts.origin)},"uri":${canonicalJson(parts.uri)}}`
  );
}

/** {@link signedRequestText} around a body that may be large, as bytes. */
export function signedRequestBytes(
  parts: Omit<SignedRequestParts, 'canonicalContent'>,
  canonicalContent: Uint8Array | undefined,
): Buffer {
  const around = signedRequestText({ ...parts, canonicalContent: undefined });
  if (canonicalContent === undefined) return Buffer.from(around);
  const [before, after] = ['{"content":', `,${around.slice(1)}`];
  const contentEnd = before.length + canonicalContent.length;
  const bytes = Buffer.allocUnsafe(contentEnd + Buffer.byteLength(after));
  bytes.write(before);
  bytes.set(canonicalContent, before.length);
  bytes.write(after, contentEnd);
  return bytes;
}

/** The `Authorization` header of a request of this server; the body as text, or as the bytes that are sent. */
export function authorizationHeader(
  parts: Omit<SignedRequestParts, 'canonicalContent'> & { readonly canonicalContent: string | Uint8Array | undefined },
  key: SigningKey,
): string {
  const { canonicalContent } = parts;
  const signature = key.sign(
    canonicalContent instanceof Uint8Array
      ? signedRequestBytes(parts, canonicalContent)
      : signedRequestText({ ...parts, canonicalContent }),
  );
  const destination = parts.destination === undefined ? '' : `destination="${parts.destination}",`;
  return `X-Matrix origin="${parts.origin}",${destination}key="${key.keyId}",sig="${signature}"`;
}

/**
 * Reads an `Authorization` header. Values may be quoted or, from older servers, bare; unknown parameters are passed over.
 * @returns `undefined` for another scheme and for what lacks a part
 */
export function parseAuthorization(header: string): RequestCredentials | undefined {
  if (header.length > maxHeaderLength) return undefined;
  const start = /^X-Matrix +/i.exec(header)?.[0];
  if (start === undefined) return undefined;
  const values = new Map<string, string>();
  const parameter =
    /[\t ]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t ]*=[\t ]*(?:"((?:[^"\\]|\\.)*)"|([^\t ,"]+))[\t ]*(,|$)|[\t ]*,/y;
  parameter.lastIndex = start.length;
  while (parameter.lastIndex < header.length) {
    const match = parameter.exec(header);
    if (match === null) return undefined;
    const [, name, quoted, bare] = match;
    if (name === undefined) continue; // an empty list element
    const key = name.toLowerCase();
    // Said twice, it might be read differently elsewhere.
    if (values.has(key)) return undefined;
    values.set(key, quoted === undefined ? (bare ?? '') : quoted.replace(/\\(.)/g, '$1'));
  }
  const [origin, keyId, signature] = [values.get('origin'), values.get('key'), values.get('sig')];
  if (!origin || !keyId || !signature) return undefined;
  return { origin, destination: values.get('destination'), keyId, signature };
}

/**
 * Reads the `Authorization` headers of a request. Those of other schemes are passed over.
 * @returns `undefined` without one of a server, with more than four of them, when one cannot be read, and when they do not
 *   agree on who speaks to whom
 */
export function parseAuthorizations(headers: readonly string[]): RequestSignatures | undefined {
  const ofServers = headers.filter((header) => scheme.test(header));
  if (ofServers.length > maxHeaders) return undefined;
  const signatures: RequestCredentials[] = [];
  for (const header of ofServers) {
    const one = parseAuthorization(header);
    const first = signatures[0] ?? one;
    if (one === undefined || one.origin !== first?.origin || one.destination !== first.destination) return undefined;
    signatures.push(one);
  }
  const first = signatures[0];
  return first && { origin: first.origin, destination: first.destination, signatures };
}
