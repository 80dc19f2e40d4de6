import { loadUndici, undici } from '@rookery/http';
import { isJsonObject, isValidServerName, parseServerName } from '@rookery/matrix-types';
import { Cache, type Clock, type Config, type Ids, SingleFlight } from '@rookery/platform';
import type { Client, Dispatcher } from 'undici';
import { DialError, NoWayOutError } from '../network/dial-error.js';
import type { Dialer } from '../network/dialer.js';
import type { TlsTrust } from '../network/tls-trust.js';
import { untilAborted } from '../network/until-aborted.js';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

/** How long a document holds: as it says, within these bounds. */
const defaultLifetimeMs = 24 * hourMs;
const minLifetimeMs = 5 * minuteMs;
const maxLifetimeMs = 48 * hourMs;
/** Before a host without a document is asked again. */
const absentMs = hourMs;
/** Before a host is asked again that does not answer; doubles each time, up to the above. */
const downMs = 2 * minuteMs;
/** A document that cannot be had anymore still holds so long beyond its time: its host may be down only. */
const keptMs = 2 * hourMs;
/** In this part of its lifetime, its last, a document is fetched again while it is still used. */
const refreshPart = 0.2;

const fetchTimeoutMs = 30_000;
const maxBytes = 51_200;
const maxRedirects = 5;

interface Entry {
  /** Where the document points to; `undefined` when there is none. */
  readonly delegate: string | undefined;
  /** Times in a row that the host did not answer. */
  readonly failures: number;
  readonly expiresMs: number;
  readonly refreshMs: number;
  /** Until when the document may be used if it cannot be fetched. */
  readonly keptUntilMs: number;
}

/** What a host says when it is asked: a document, none that is valid, or nothing for the moment. */
type Answer = { readonly delegate: string; readonly lifetimeMs: number } | 'invalid' | 'down';

/** What is needed to ask hosts. */
export interface WellKnownParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly dialer: Dialer;
  readonly trust: TlsTrust;
  readonly userAgent: string;
}

/** The documents in which hosts say that another one speaks for them. @spec server-server-api#resolving-server-names */
export class WellKnown {
  readonly #known: Cache<string, Entry>;
  readonly #asking = new SingleFlight<Entry>();

  constructor(private readonly parts: WellKnownParts) {
    this.#known = new Cache(parts.config, 'well_known', { invalidation: 'expires', max: 10_000 });
  }

  /**
   * The server name that speaks for a host; `undefined` when the host names none. A host that cannot be asked is one without document.
   * @throws NoWayOutError where no host could be asked
   */
  async delegateOf(host: string): Promise<string | undefined> {
    const key = host.toLowerCase();
    const entry = this.#known.get(key);
    const nowMs = this.parts.clock.nowMs();
    if (entry === undefined || entry.expiresMs <= nowMs) return (await this.#ask(key, entry)).delegate;
    if (entry.refreshMs <= nowMs) void this.#ask(key, entry).catch(() => undefined);
    return entry.delegate;
  }

  #ask(host: string, before: Entry | undefined): Promise<Entry> {
    return this.#asking.run(host, async () => {
      const entry = this.#entryOf(await this.#fetch(host), before);
      this.#known.set(host, entry);
      return entry;
    });
  }

  #entryOf(answer: Answer, before: Entry | undefined): Entry {
    const nowMs = this.parts.clock.nowMs();
    if (typeof answer === 'object') {
      const expiresMs = nowMs + answer.lifetimeMs;
      const refreshMs = expiresMs - refreshPart * answer.lifetimeMs;
      return { delegate: answer.delegate, failures: 0, expiresMs, refreshMs, keptUntilMs: expiresMs + keptMs };
    }
    const failures = (before?.failures ?? 0) + 1;
    const retryMs = nowMs + this.#jittered(Math.min(downMs * 2 ** Math.min(failures - 1, 8), absentMs));
    const mayHold = answer === 'down' ? before?.keptUntilMs : before?.expiresMs;
    if (before?.delegate !== undefined && nowMs < (mayHold ?? 0)) {
      return { ...before, failures, expiresMs: Math.max(before.expiresMs, retryMs), refreshMs: retryMs };
    }
    const expiresMs = answer === 'down' ? retryMs : nowMs + this.#jittered(absentMs);
    return { delegate: undefined, failures, expiresMs, refreshMs: expiresMs, keptUntilMs: 0 };
  }

  /** Ten percent more or less, so that not everything is asked again at the same moment. */
  #jittered(ms: number): number {
    return Math.round(ms * (0.9 + this.parts.ids.integer(201) / 1000));
  }

  async #fetch(host: string): Promise<Answer> {
    const first = `https://${host}/.well-known/matrix/server`;
    // Some names that the grammar allows are no hosts of URLs.
    if (!URL.canParse(first)) return 'invalid';
    let url = new URL(first);
    const signal = AbortSignal.timeout(fetchTimeoutMs);
    await loadUndici();
    for (let redirects = 0; redirects <= maxRedirects; redirects++) {
      const client = this.#clientOf(url);
      try {
        const asking = client.request({
          ...{ method: 'GET', path: `${url.pathname}${url.search}`, signal },
          headers: { 'user-agent': this.parts.userAgent, accept: 'application/json' },
        });
        const answer = await untilAborted(asking, signal, ({ body }) => body.on('error', () => undefined).destroy());
        const location = answer.headers['location'];
        if (answer.statusCode >= 300 && answer.statusCode < 400 && typeof location === 'string') {
          if (!URL.canParse(location, url.href)) return 'invalid';
          url = new URL(location, url);
          if (url.protocol !== 'https:') return 'invalid';
          continue;
        }
        if (answer.statusCode >= 500 || answer.statusCode === 429) return 'down';
        if (answer.statusCode !== 200) return 'invalid';
        return await this.#read(answer);
      } catch (error) {
        // Nothing that could be remembered of the host.
        if (error instanceof NoWayOutError) throw error;
        return error instanceof DialError && error.reason === 'blocked' ? 'invalid' : 'down';
      } finally {
        await client.destroy();
      }
    }
    return 'invalid';
  }

  #clientOf(url: URL): Client {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = url.port === '' ? 443 : Number(url.port);
    const target = { routes: [{ host, port }], tlsName: host, verify: this.parts.trust.verifies(host) };
    return new (undici().Client)(url.origin, {
      ...{ allowH2: false, maxHeaderSize: 32_768 },
      connect: (_, callback) => {
        this.parts.dialer.dial(target).then(
          (socket) => callback(null, socket),
          (error: Error) => callback(error, null),
        );
      },
    });
  }

  async #read({ headers, body }: Dispatcher.ResponseData): Promise<Answer> {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body) {
      size += (chunk as Buffer).length;
      if (size > maxBytes) return 'invalid';
      chunks.push(chunk as Buffer);
    }
    let document: unknown;
    try {
      document = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    } catch {
      return 'invalid';
    }
    const delegate = isJsonObject(document) ? document['m.server'] : undefined;
    if (typeof delegate !== 'string' || !isValidServerName(delegate) || parseServerName(delegate)?.port === 0)
      return 'invalid';
    const nowMs = this.parts.clock.nowMs();
    const told = lifetimeOf(headers, nowMs);
    const lifetimeMs = told === undefined ? this.#jittered(defaultLifetimeMs) : told;
    return { delegate, lifetimeMs: Math.min(Math.max(lifetimeMs, minLifetimeMs), maxLifetimeMs) };
  }
}

/** How long an answer may be kept by its own word, milliseconds; `undefined` when it says nothing. */
function lifetimeOf(headers: Dispatcher.ResponseData['headers'], nowMs: number): number | undefined {
  const control = [headers['cache-control'] ?? []].flat().join(',').toLowerCase();
  if (/(?:^|[\s,])no-(?:store|cache)(?:$|[\s,=])/.test(control)) return 0;
  const age = /(?:^|[\s,])max-age\s*=\s*"?(\d{1,12})/.exec(control)?.[1];
  if (age !== undefined) return Number(age) * 1000;
  const expires = headers['expires'];
  if (expires === undefined) return undefined;
  const atMs = Date.parse(String(expires));
  return Number.isNaN(atMs) ? 0 : Math.max(0, atMs - nowMs);
}
