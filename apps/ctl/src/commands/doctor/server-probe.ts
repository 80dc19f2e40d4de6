import { lookup, resolveSrv } from 'node:dns/promises';
import { request } from 'node:https';
import { isIP } from 'node:net';
import { verifyJson, VerifyKey } from '@rookery/events';
import { isJsonObject, type JsonObject, parseServerName } from '@rookery/matrix-types';
import { SystemClock } from '@rookery/platform';
import { error, type Finding, ok, warning } from './finding.js';

const limitMs = 10_000;
const clockSkewMs = 60_000;
const maxAnswerBytes = 100_000;
const maxRoutes = 6;
const maxRedirects = 5;
const defaultPort = 8448;
/** Keys are fetched again before they end: who shows some that end sooner is without any now and then. */
const shortMs = 3_600_000;

/** How a probe reaches other machines. */
export interface ProbeOptions {
  /** Certificates of authorities to believe beside the usual ones, PEM. */
  readonly ca?: string | undefined;
  /** First part of the paths, `_matrix` unless the servers agreed on another. */
  readonly prefix?: string;
}

/** What names lead to; absent for none. */
export interface Names {
  /** `m.server` of the document under a host; empty where the document has none. */
  delegate(host: string): Promise<string | undefined>;
  srv(name: string): Promise<readonly { readonly name: string; readonly port: number; readonly priority: number }[]>;
}

/** The way to a server. */
export interface Way {
  readonly routes: readonly { readonly host: string; readonly port: number }[];
  readonly hostHeader: string;
  /** What the certificate must be for. */
  readonly tlsName: string;
  /** How it was found, a line each. */
  readonly steps: readonly Finding[];
}

/**
 * The way that other servers take to a server, looked for anew.
 * @returns `undefined` for what is no server name
 * @spec server-server-api#resolving-server-names
 */
export async function wayTo(serverName: string, names: Names): Promise<Way | undefined> {
  const parts = parseServerName(serverName);
  if (parts === undefined || parts.port === 0) return undefined;
  const literal = literalWay(serverName);
  if (literal) return { ...literal, steps: [] };
  const steps: Finding[] = [];
  let host = serverName;
  const delegate = await names.delegate(serverName);
  if (delegate === undefined) steps.push(ok(`${serverName} delegates to nobody`));
  else if (delegate === '')
    steps.push(
      warning(`the document under ${serverName} has no m.server`, 'Answer {"m.server": "host:port"} there, or 404.'),
    );
  else if (parseServerName(delegate) === undefined)
    steps.push(error(`the document under ${serverName} names "${delegate}"`, 'm.server is a host, or host:port.'));
  else {
    steps.push(ok(`the document under ${serverName} names ${delegate}`));
    const delegated = literalWay(delegate);
    if (delegated) return { ...delegated, steps };
    host = delegate;
  }
  for (const service of ['_matrix-fed._tcp', '_matrix._tcp']) {
    const records = (await names.srv(`${service}.${host}`)).toSorted((a, b) => a.priority - b.priority);
    if (records.length === 0) continue;
    steps.push(ok(`${service}.${host} names ${records.map(({ name, port }) => `${name}:${port}`).join(', ')}`));
    if (service === '_matrix._tcp')
      steps.push(warning(`${service} is out of date`, `Make the record _matrix-fed._tcp.${host} as well.`));
    const routes = records
      .map(({ name, port }) => ({ host: name.replace(/\.$/, ''), port }))
      .filter((route) => route.host !== '' && route.port > 0);
    // A single record that points to the root is the word that there is no such service.
    if (routes.length === 0)
      steps.push(error(`${service}.${host} says that it is not reachable`, 'Let the record name a host and a port.'));
    return { routes: routes.slice(0, maxRoutes), hostHeader: host, tlsName: host, steps };
  }
  return { routes: [{ host, port: defaultPort }], hostHeader: host, tlsName: host, steps };
}

function literalWay(serverName: string): Omit<Way, 'steps'> | undefined {
  const parts = parseServerName(serverName);
  if (parts === undefined || (parts.kind === 'dns' && parts.port === undefined)) return undefined;
  const { host, port = defaultPort } = parts;
  return { routes: [{ host, port }], hostHeader: serverName, tlsName: host };
}

/**
 * Looks at a server as another one would: its name, every address of it, certificate and keys.
 * @returns what was found, in the order in which it was looked at
 */
export async function probeServer(serverName: string, options: ProbeOptions = {}): Promise<readonly Finding[]> {
  const way = await wayTo(serverName, systemNames(options));
  if (way === undefined) return [error(`${serverName} is not the name of a server`)];
  const findings = [...way.steps];
  let statement: JsonObject | undefined;
  const silent: Finding[] = [];
  for (const { host, port } of way.routes) {
    for (const address of await addressesOf(host, silent)) {
      const place = `${address.includes(':') ? `[${address}]` : address}:${port}`;
      try {
        const { status, json, date } = await get(
          `/${options.prefix ?? '_matrix'}/key/v2/server`,
          address,
          port,
          way,
          options,
        );
        if (statement === undefined && date !== undefined) findings.push(...skew(date, place));
        statement ??= json;
        findings.push(
          status === 200 && json !== undefined
            ? ok(`${place} answers, with a certificate for ${way.tlsName}`)
            : error(
                `${place} answers ${status}, and not as a homeserver`,
                'Let the proxy there forward to the server.',
              ),
        );
      } catch (reason) {
        silent.push(unreachable(place, reason as NodeJS.ErrnoException));
      }
    }
  }
  const isReached = statement !== undefined;
  // Who has another way takes that.
  findings.push(...silent.map((finding) => (isReached ? { ...finding, level: 'warning' as const } : finding)));
  if (statement) findings.push(...keysIn(serverName, statement));
  return findings;
}

const unreachable = (place: string, reason: NodeJS.ErrnoException): Finding =>
  error(
    `other servers do not reach it at ${place}: ${reason.code ?? reason.message}`,
    'See docs/operators/federation.md: the name, the port, and a certificate that everybody can verify.',
  );

async function addressesOf(host: string, silent: Finding[]): Promise<string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (reason) {
    silent.push(
      error(
        `${host} is not known: ${(reason as NodeJS.ErrnoException).code ?? ''}`,
        'Make a record of type A or AAAA.',
      ),
    );
    return [];
  }
}

/** Our clock against another's; the request takes its time, too. */
export function skew(date: string | null, whose: string): Finding[] {
  const theirMs = date === null ? Number.NaN : Date.parse(date);
  const seconds = Math.round((new SystemClock().nowMs() - theirMs) / 1000);
  return Math.abs(seconds) * 1000 > clockSkewMs
    ? [
        warning(
          `the clock of this machine differs by ${seconds} seconds from that of ${whose}`,
          'Let it follow a time server: signatures and tokens depend on it.',
        ),
      ]
    : [];
}

/** What a server says of its keys. @spec server-server-api#get_matrixkeyv2server */
function keysIn(serverName: string, statement: JsonObject): Finding[] {
  const { server_name: name, valid_until_ts: until, verify_keys: keys } = statement;
  if (name !== serverName)
    return [
      error(
        `it answers as ${typeof name === 'string' ? name : 'nobody'}, not as ${serverName}`,
        'Let the proxy there forward to this server.',
      ),
    ];
  const findings: Finding[] = [];
  const leftMs = (typeof until === 'number' ? until : 0) - new SystemClock().nowMs();
  if (leftMs <= 0) findings.push(error('its keys are out of date', 'Is the clock of its machine right?'));
  else if (leftMs < shortMs) findings.push(warning('its keys are out of date within an hour'));
  const named = Object.entries(isJsonObject(keys) ? keys : {});
  if (named.length === 0) findings.push(error('it shows no keys'));
  for (const [keyId, entry] of named) {
    const text = isJsonObject(entry) ? entry['key'] : undefined;
    const key = typeof text === 'string' ? VerifyKey.parse(text) : undefined;
    findings.push(
      key && verifyJson(statement, serverName, keyId, key)
        ? ok(`the key ${keyId} has signed what it says`)
        : error(`the key ${keyId} has not signed what it says`, 'Others believe nothing that is signed with it.'),
    );
  }
  return findings;
}

interface Heard {
  readonly status: number;
  readonly json: JsonObject | undefined;
  readonly date: string | undefined;
  readonly location: string | undefined;
}

function get(
  path: string,
  address: string,
  port: number,
  { hostHeader, tlsName }: Way,
  { ca }: ProbeOptions,
): Promise<Heard> {
  return new Promise((resolve, reject) => {
    const asked = request(
      {
        ...{ host: address, port, path, agent: false, headers: { host: hostHeader } },
        // An address is no name that could be asked for.
        ...(isIP(tlsName) === 0 && { servername: tlsName }),
        ...(ca !== undefined && { ca }),
        signal: AbortSignal.timeout(limitMs),
      },
      (response) => {
        let text = '';
        const { date, location } = response.headers;
        response.setEncoding('utf8');
        response.on('data', (part: string) => {
          text += part;
          if (text.length > maxAnswerBytes) asked.destroy(new Error('it answers too much'));
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, json: objectIn(text), date, location }));
        response.on('error', reject);
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const json: unknown = JSON.parse(text);
    return isJsonObject(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

const systemNames = (options: ProbeOptions): Names => ({
  delegate: (host) => delegateAt(`https://${host}/.well-known/matrix/server`, options),
  srv: (name) => resolveSrv(name).catch(() => []),
});

/** `m.server` of the document at a URL, wherever that leads; empty where the document has none. Absent where there is no document. */
export async function delegateAt(first: string, options: ProbeOptions): Promise<string | undefined> {
  try {
    let url = new URL(first);
    for (let redirects = 0; redirects <= maxRedirects && url.protocol === 'https:'; redirects++) {
      const host = url.hostname.replace(/^\[|\]$/g, '');
      const way: Way = { routes: [], hostHeader: url.host, tlsName: host, steps: [] };
      const { status, json, location } = await get(
        url.pathname + url.search,
        host,
        Number(url.port || 443),
        way,
        options,
      );
      if (status === 200) return typeof json?.['m.server'] === 'string' ? json['m.server'] : '';
      if (status < 300 || status >= 400 || location === undefined) return undefined;
      url = new URL(location, url);
    }
  } catch {
    // Nobody has to answer there.
  }
  return undefined;
}
