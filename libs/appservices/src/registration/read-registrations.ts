import type { ProxiedPaths } from '@rookery/http';
import { type ConfigProblem, isIpRange, readSources, toBlockList } from '@rookery/platform';
import { type Namespace, namespaceKinds, NamespacePattern, type Namespaces } from './namespaces.js';
import { Registration } from './registration.js';

type Path = readonly (string | number)[];
type Section = Readonly<Record<string, unknown>>;

/** Most namespaces of one kind in one file. */
const maxNamespaces = 10_000;
const longestTokenLength = 1_000;
const longestPrefix = 255;

const [proxyPrefixKey, proxyUrlKey] = ['io.element.msc4512.proxy_prefix', 'io.element.msc4512.proxy_url'] as const;

/** The registrations of files that are right, and what is wrong with the others. */
export interface ReadRegistrations {
  readonly registrations: readonly Registration[];
  readonly problems: readonly ConfigProblem[];
}

/**
 * Reads registration files of application services. Problems name file, line, field and what to write.
 * @spec application-service-api#registration
 */
export function readRegistrations(files: readonly string[], serverName: string): ReadRegistrations {
  const problems: ConfigProblem[] = [];
  const read = files.map((file) => {
    const reader = new RegistrationReader(file, serverName);
    const registration = reader.read();
    problems.push(...reader.problems);
    return { reader, registration };
  });
  const usable = read.flatMap(({ reader, registration }) => (registration ? [{ reader, registration }] : []));
  for (const [field, valueOf] of [
    ['id', (one: Registration) => one.id],
    ['as_token', (one: Registration) => one.fields.asToken],
  ] as const) {
    const seen = new Map<string, string>();
    for (const { reader, registration } of usable) {
      const value = valueOf(registration);
      const first = seen.get(value);
      if (first === undefined) seen.set(value, reader.file);
      else
        problems.push(
          reader.problem(
            [field],
            `the same as in ${first}: each application service needs ${article(field)} of its own`,
          ),
        );
    }
  }
  for (const [at, { reader, registration }] of usable.entries()) {
    const prefix = registration.fields.proxied?.prefix;
    if (prefix === undefined) continue;
    const other = usable.slice(0, at).find(({ registration: { fields } }) => overlap(prefix, fields.proxied?.prefix));
    if (other === undefined) continue;
    const theirs = other.registration.fields.proxied!.prefix;
    problems.push(
      reader.problem(
        [proxyPrefixKey],
        `overlaps with ${theirs} in ${other.reader.file}: a path goes to one service alone`,
      ),
    );
  }
  return { registrations: usable.map(({ registration }) => registration), problems };
}

/** Whether some path lies below both of two prefixes. */
function overlap(one: string, other: string | undefined): boolean {
  return other !== undefined && (`${one}/`.startsWith(`${other}/`) || `${other}/`.startsWith(`${one}/`));
}

const article = (field: string): string => (field === 'id' ? 'an id' : 'a token');

class RegistrationReader {
  readonly problems: ConfigProblem[] = [];
  #locate: (path: Path) => string | undefined = () => undefined;

  constructor(
    readonly file: string,
    private readonly serverName: string,
  ) {}

  read(): Registration | undefined {
    const { raw, problems, locate } = readSources([this.file]);
    this.#locate = (path) => locate([...path]);
    this.problems.push(...problems);
    if (this.#failed) return undefined;
    const fields = {
      id: this.#text(raw, 'id', 'a name of your choice that stays the same'),
      url: this.#url(raw),
      asToken: this.#token(raw, 'as_token'),
      hsToken: this.#token(raw, 'hs_token'),
      senderUserId: this.#sender(raw),
      rateLimited: this.#flag(raw, 'rate_limited') ?? true,
      namespaces: this.#namespaces(raw),
      protocols: this.#texts(raw, 'protocols'),
      ephemeral: {
        stable: this.#flag(raw, 'receive_ephemeral') ?? false,
        unstable: this.#flag(raw, 'de.sorunome.msc2409.push_ephemeral') ?? false,
      },
      extensions: this.#flag(raw, 'org.matrix.msc3202') ?? false,
      scopes: this.#texts(raw, 'io.element.msc4502.scopes'),
      proxied: this.#proxied(raw),
      sources: this.#sources(raw),
    };
    // Device management (MSC4190) is open to every service by now; the flag is only checked.
    this.#flag(raw, 'io.element.msc4190');
    return this.#failed ? undefined : new Registration(fields, this.serverName);
  }

  problem(path: Path, message: string): ConfigProblem {
    const setting = path.reduce<string>(
      (text, part) => (typeof part === 'number' ? `${text}[${part}]` : text === '' ? part : `${text}.${part}`),
      '',
    );
    return { level: 'error', where: this.#locate(path) ?? this.file, setting, message };
  }

  get #failed(): boolean {
    return this.problems.some(({ level }) => level === 'error');
  }

  #wrong(path: Path, message: string): void {
    this.problems.push(this.problem(path, message));
  }

  #text(raw: Section, key: string, meaning: string): string {
    const value = raw[key];
    if (typeof value === 'string' && value !== '' && value.length <= longestTokenLength) return value;
    if (value === undefined || value === null || value === '') this.#wrong([key], `is missing: write ${meaning}`);
    else if (typeof value === 'string') this.#wrong([key], `longer than ${longestTokenLength} characters`);
    else this.#wrong([key], 'expected text: put it in quotes');
    return '';
  }

  #token(raw: Section, key: string): string {
    const token = this.#text(raw, key, 'a long random text, the same as in the settings of the application service');
    // It travels in a header.
    if (!/^[\x21-\x7e]*$/.test(token)) this.#wrong([key], 'expected ASCII characters without spaces');
    return token;
  }

  #flag(raw: Section, key: string): boolean | undefined {
    const value = raw[key];
    if (value === undefined || value === null) return undefined;
    if (typeof value !== 'boolean') this.#wrong([key], 'expected true or false');
    return value === true;
  }

  #url(raw: Section): string | undefined {
    // An address that was forgotten would silently be a service that gets nothing.
    if (!('url' in raw)) {
      this.#wrong(['url'], 'is missing: write the address of the application service, or null if it wants no traffic');
      return undefined;
    }
    const value = raw['url'];
    if (value === null || value === '') return undefined;
    if (!isHttpUrl(value)) {
      this.#wrong(['url'], 'expected an address such as http://localhost:9000, or null');
      return undefined;
    }
    return value.replace(/\/+$/, '');
  }

  #proxied(raw: Section): ProxiedPaths | undefined {
    const [prefix, url] = [raw[proxyPrefixKey] ?? undefined, raw[proxyUrlKey] ?? undefined];
    if (prefix === undefined && url === undefined) return undefined;
    if (prefix === undefined) this.#wrong([proxyUrlKey], `needs ${proxyPrefixKey}: the paths that go there`);
    else if (typeof prefix !== 'string' || !isPathPrefix(prefix))
      this.#wrong(
        [proxyPrefixKey],
        'expected segments of a path such as foo/bar, without slashes at its ends, of letters, digits and . _ ~ - alone',
      );
    if (url === undefined) this.#wrong([proxyPrefixKey], `needs ${proxyUrlKey}: where these paths go`);
    else if (!isHttpUrl(url) || /[?#]/.test(url))
      this.#wrong([proxyUrlKey], 'expected an address such as http://localhost:9000');
    return typeof prefix === 'string' && typeof url === 'string' ? { prefix, url: url.replace(/\/+$/, '') } : undefined;
  }

  #sender(raw: Section): string {
    const key = 'sender_localpart';
    let localpart = this.#text(raw, key, 'the part of a user id between @ and the colon');
    if (localpart.startsWith('@') || localpart.includes(':')) {
      const [name = '', ...server] = localpart.replace(/^@/, '').split(':');
      const elsewhere = server.length > 0 && server.join(':') !== this.serverName;
      this.#wrong(
        [key],
        elsewhere
          ? `the user must be one of this server, ${this.serverName}: write ${name} alone`
          : `write ${name} alone, without @ and server name`,
      );
      localpart = name;
    } else if (localpart !== '' && !/^[\w.=/+~-]+$/.test(localpart)) {
      this.#wrong([key], 'expected letters, digits and . _ = / + - alone');
    }
    const userId = `@${localpart}:${this.serverName}`;
    if (Buffer.byteLength(userId) > 255) this.#wrong([key], 'the user id would be longer than 255 bytes');
    return userId;
  }

  #texts(raw: Section, key: string): readonly string[] {
    const value = raw[key] ?? [];
    const list: unknown[] = Array.isArray(value) ? value : [value];
    if (!list.every((one): one is string => typeof one === 'string' && one !== '')) {
      this.#wrong([key], 'expected a list of names');
      return [];
    }
    return [...new Set(list)];
  }

  #sources(raw: Section): ReturnType<typeof toBlockList> | undefined {
    const key = 'ip_range_whitelist';
    const ranges = this.#texts(raw, key);
    const bad = ranges.findIndex((range) => !isIpRange(range));
    if (bad >= 0) this.#wrong([key, bad], 'expected an address or a range such as 10.0.0.0/8');
    return ranges.length === 0 || bad >= 0 ? undefined : toBlockList(ranges);
  }

  #namespaces(raw: Section): Namespaces {
    const value = raw['namespaces'];
    const empty = { users: [], aliases: [], rooms: [] };
    if (value === undefined || value === null) {
      this.#wrong(['namespaces'], 'is missing: write users, aliases and rooms, each a list that may be empty');
      return empty;
    }
    if (!isSection(value)) {
      this.#wrong(['namespaces'], 'expected users, aliases and rooms, each a list');
      return empty;
    }
    for (const key of Object.keys(value)) {
      if (!(namespaceKinds as readonly string[]).includes(key))
        this.#wrong(['namespaces', key], `not known: there are ${namespaceKinds.join(', ')}`);
    }
    const [users = [], aliases = [], rooms = []] = namespaceKinds.map((kind) => this.#namespacesOf(kind, value[kind]));
    return { users, aliases, rooms };
  }

  #namespacesOf(kind: string, value: unknown): Namespace[] {
    const path = ['namespaces', kind];
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value) || value.length > maxNamespaces) {
      this.#wrong(path, Array.isArray(value) ? `more than ${maxNamespaces} entries` : 'expected a list');
      return [];
    }
    return value.flatMap((entry: unknown, index): Namespace[] => {
      if (!isSection(entry)) {
        this.#wrong([...path, index], 'expected regex and exclusive');
        return [];
      }
      const { regex, exclusive } = entry;
      if (typeof exclusive !== 'boolean')
        this.#wrong(
          [...path, index, 'exclusive'],
          `${exclusive === undefined ? 'is missing' : 'is wrong'}: write true or false`,
        );
      if (typeof regex !== 'string') {
        this.#wrong(
          [...path, index, 'regex'],
          `${regex === undefined ? 'is missing' : 'is wrong'}: write a regular expression in quotes`,
        );
        return [];
      }
      try {
        return [{ pattern: new NamespacePattern(regex), exclusive: exclusive === true }];
      } catch (error) {
        this.#wrong([...path, index, 'regex'], `not a regular expression: ${(error as Error).message}`);
        return [];
      }
    });
  }
}

const isHttpUrl = (value: unknown): value is string =>
  typeof value === 'string' && /^https?:\/\//i.test(value) && URL.canParse(value);

const isPathPrefix = (value: string): boolean =>
  value.length <= longestPrefix &&
  value.split('/').every((segment) => /^[\w.~-]+$/.test(segment) && segment !== '.' && segment !== '..');

const isSection = (value: unknown): value is Section =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
