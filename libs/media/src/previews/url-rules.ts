/** Longest address that is looked at. */
export const longestUrl = 2_048;

/** Parts of an address, named as in the setting `url_preview_url_blacklist`. */
type UrlPart = 'scheme' | 'netloc' | 'path' | 'query' | 'fragment' | 'username' | 'password' | 'hostname' | 'port';

/** Whether an address is not to be previewed. */
export type UrlRule = (url: URL) => boolean;

const decoded = (text: string): string | undefined => (text === '' ? undefined : text);

function partsOf(url: URL): Readonly<Record<UrlPart, string | undefined>> {
  const { username, password, host, hostname, pathname, port, protocol, search, hash } = url;
  const credentials = username === '' ? '' : `${username}${password === '' ? '' : `:${password}`}@`;
  return {
    scheme: protocol.slice(0, -1),
    netloc: credentials + host,
    path: pathname,
    query: search.slice(1),
    fragment: hash.slice(1),
    username: decoded(username),
    password: decoded(password),
    hostname,
    port: decoded(port),
  };
}

/** A glob (`*`, `?`, `[abc]`, `[!abc]`) for a whole text as a regular expression. */
function globSource(glob: string): string {
  const source = glob.replace(
    /\[(!?)([^\]]+)\]|[*?]+|[^\w]/g,
    (part, not: string | undefined, set: string | undefined) => {
      if (set !== undefined) return `[${not === '!' ? '^' : ''}${set.replace(/[\\\]^[]/g, '\\$&')}]`;
      // Stars in a row mean what one does, and would only take longer.
      if (part.includes('*')) return '.*';
      return /^\?+$/.test(part) ? '.'.repeat(part.length) : `\\${part}`;
    },
  );
  return `^${source}$`;
}

/**
 * The setting `url_preview_url_blacklist` as one rule. An entry holds when all parts that it names fit: a glob for the whole
 * part, or a regular expression for its beginning where it begins with `^`. A part that the address does not have fits nothing.
 * @throws SyntaxError for a regular expression that is none
 */
export function blockedUrls(entries: readonly Readonly<Record<string, string>>[]): UrlRule {
  const compiled = entries.map((entry) =>
    Object.entries(entry).map(([part, pattern]) => ({
      part: part as UrlPart,
      pattern: new RegExp(pattern.startsWith('^') ? pattern : globSource(pattern), 's'),
    })),
  );
  return (url) => {
    if (compiled.length === 0) return false;
    const parts = partsOf(url);
    return compiled.some(
      (entry) =>
        entry.length > 0 &&
        entry.every(({ part, pattern }) => {
          const value = parts[part];
          return value !== undefined && pattern.test(value);
        }),
    );
  };
}
