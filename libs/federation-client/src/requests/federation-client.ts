import { canonicalJson, parseJson } from '@rookery/events';
import { type JsonRules, loadUndici, parseJsonInSlices, targetOnWire } from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject } from '@rookery/matrix-types';
import {
  type Clock,
  type Config,
  type Ids,
  KeyedSemaphore,
  type Logger,
  type Metrics,
  QueueFullError,
  LogContext,
} from '@rookery/platform';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Dispatcher, Pool } from 'undici';
import type { Destinations } from '../destinations/destinations.js';
import type { OwnKeys } from '../signing/own-keys.js';
import { untilAborted } from '../network/until-aborted.js';
import { authorizationHeader } from '../signing/authorization.js';
import { maxRequests, type ServerConnections } from './connections.js';
import { failureOf } from './failure-of.js';
import { type FederationFailure, FederationRequestError } from './federation-request-error.js';
import { type RequestQuery, requestUri } from './request-path.js';
import { Patience } from './patience.js';
import { boundedBody, isNestedTooDeeply } from './response-body.js';
import { pauseBefore, type RetryPlan, retryPlan } from './retries.js';
import { isGood, wholeAnswer } from './whole-answer.js';

/** One request to another server. */
export interface FederationRequest {
  readonly destination: string;
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** Percent-encoded; begins with `/_matrix/`, for which the settings' own prefix stands. See `federationPath`. */
  readonly path: string;
  readonly query?: RequestQuery | undefined;
  /** The JSON body. */
  readonly content?: Readonly<JsonObject> | undefined;
  /** The body as canonical JSON, in place of `content`, where it is at hand; as bytes where many servers are sent the same. */
  readonly canonicalContent?: string | Uint8Array | undefined;
  /** For each try, from its turn to the last byte. Default `federation.client_timeout`. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long the other server may say nothing: until its answer begins, and between two pieces of it. For what may take long
   * because there is much of it. Default `timeoutMs`.
   */
  readonly silenceMs?: number | undefined;
  /** Largest answer, bytes, after decompression. Default 100 MiB. */
  readonly maxBytes?: number | undefined;
  /**
   * How often a server that does not answer is tried again: `short` while somebody waits, and only as long as one try might
   * take, `long` for what must arrive, `none` for what must not happen twice. Default `short` for `GET` and `PUT`, else `none`.
   */
  readonly retries?: RetryPlan | undefined;
  /**
   * Try although the server could not be reached lately; a failure is not held against it, either. For what a person does once
   * and waits for, and for names that anybody may have made up: nothing is written down about them.
   */
  readonly ignoreBackoff?: boolean | undefined;
  /**
   * Somebody waits for the answer, maybe one of many servers': one that could not be reached lately is tried all the same, once,
   * though no oftener than every ten seconds.
   */
  readonly awaited?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** An answer of status 2xx. */
export interface FederationResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/** An answer of status 2xx whose body is still on its way. */
export interface FederationStream extends Omit<FederationResponse, 'body'> {
  /** Fails with {@link FederationRequestError}. Must be read or destroyed. */
  readonly body: Readable;
}

/** What a client is made of. */
export interface FederationClientParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly keys: OwnKeys;
  readonly destinations: Destinations;
  readonly connections: ServerConnections;
  readonly userAgent: string;
}

const defaultMaxBytes = 104_857_600;
/** Requests to one server that wait for their turn. Streams have places of their own, as many as files may be fetched. */
const maxWaiting = 500;
/** Deepest nesting of an answer that holds no events. */
const maxNesting = 128;
/** Most values of an answer: some more than the state of the largest rooms has. */
const maxValues = 20_000_000;
/** Longest string of an answer, bytes. */
const maxStringBytes = 8_388_608;
const plainRules: JsonRules = { maxDepth: maxNesting, maxValues, maxStringBytes, anyNumber: true };
const exactRules: JsonRules = { ...plainRules, maxDepth: Infinity, parse: parseJson };
/** Largest body of an error that is looked at, bytes. */
const maxErrorBytes = 65_536;

/**
 * Signed requests to other servers. Every request is bounded in time and size, so is their number; servers that show no
 * life are left alone for a while. Failures are {@link FederationRequestError}.
 */
export class FederationClient {
  readonly #requests = new KeyedSemaphore(maxRequests, { maxWaiting });
  readonly #streams: KeyedSemaphore;
  readonly #allowed: ReadonlySet<string> | undefined;
  readonly #requestCount;
  readonly #responseCount;
  #closed = false;

  constructor(private readonly parts: FederationClientParts) {
    this.#streams = new KeyedSemaphore(parts.config.get('remote_media_downloads_per_server'), { maxWaiting });
    const allowed = parts.config.get('federation_domain_whitelist');
    this.#allowed = allowed === undefined ? undefined : new Set(allowed);
    this.#requestCount = parts.metrics.counter('synapse_http_matrixfederationclient_requests');
    this.#responseCount = parts.metrics.counter('synapse_http_matrixfederationclient_responses');
  }

  /** Whether the settings allow to speak with a server, in either direction. */
  allows(serverName: string): boolean {
    return this.#allowed?.has(serverName) ?? true;
  }

  /** Reads JSON. @throws FederationRequestError, `bad_response` when the answer is no JSON object */
  getJson(destination: string, path: string, query?: RequestQuery, more: RequestOptions = {}): Promise<JsonObject> {
    return this.requestJson({ ...more, destination, method: 'GET', path, query });
  }

  /** Sends JSON that has an id: it may be sent again. @throws FederationRequestError */
  putJson(destination: string, path: string, content: JsonObject, more: RequestOptions = {}): Promise<JsonObject> {
    return this.requestJson({ ...more, destination, method: 'PUT', path, content });
  }

  /** Sends JSON and reads the answer. @throws FederationRequestError */
  postJson(destination: string, path: string, content: JsonObject, more: RequestOptions = {}): Promise<JsonObject> {
    return this.requestJson({ ...more, destination, method: 'POST', path, content });
  }

  /** Sends a request and reads an answer that is a JSON object. @throws FederationRequestError */
  async requestJson(request: FederationRequest): Promise<JsonObject> {
    return jsonObjectOf(request.destination, await this.request(request), plainRules);
  }

  /**
   * {@link requestJson} for answers that hold events: numbers that are not canonical stay as they came
   * (see `parseJson` of events). @throws FederationRequestError
   */
  async requestExactJson(request: FederationRequest): Promise<JsonObject> {
    return jsonObjectOf(request.destination, await this.request(request), exactRules);
  }

  /** Sends a request and reads the whole answer of status 2xx. @throws FederationRequestError */
  request(request: FederationRequest): Promise<FederationResponse> {
    return this.#persist(request, this.#requests, async ({ counted, patience, done }) => {
      const { destination } = request;
      const { pool, options } = await this.#prepare(request, patience.signal);
      const maxBytes = request.maxBytes ?? defaultMaxBytes;
      const { signal, heard } = patience;
      const maxBytesOf = (status: number): number => (isGood(status) ? maxBytes : maxErrorBytes);
      const answer = await wholeAnswer(pool, options, { destination, maxBytesOf, signal, heard });
      counted(answer.status);
      if (!isGood(answer.status)) throw refusalOf(destination, answer);
      done();
      return answer;
    });
  }

  /**
   * Sends a request and hands over the answer of status 2xx as it arrives.
   * @throws FederationRequestError
   */
  stream(request: FederationRequest): Promise<FederationStream> {
    return this.#persist(request, this.#streams, async ({ counted, patience, done, explain }) => {
      const { destination } = request;
      const { signal } = patience;
      const { pool, options } = await this.#prepare(request, signal);
      // While there is no connection yet, the sending does not end by itself.
      const answer = await untilAborted(pool.request({ ...options, signal }), signal, ({ body }) =>
        body.on('error', () => undefined).destroy(),
      );
      const { statusCode: status, headers } = answer;
      counted(status);
      const limit = isGood(status) ? (request.maxBytes ?? defaultMaxBytes) : maxErrorBytes;
      const body = boundedBody(destination, answer, limit, explain);
      patience.follow(answer.body);
      if (!isGood(status)) throw refusalOf(destination, { status, headers, body: await readError(body) });
      body.once('close', done);
      return { status, headers, body };
    });
  }

  /** How many requests to a server are under way or wait. */
  load(destination: string): number {
    return this.#requests.load(destination) + this.#streams.load(destination);
  }

  /** Ends all connections; requests under way fail, as do all that come behind, and nobody is blamed for it. */
  close(): Promise<void> {
    this.#closed = true;
    return this.parts.connections.close();
  }

  /** Tries until an answer is there, the plan is used up, or trying again is no use. */
  async #persist<T>(
    request: FederationRequest,
    places: KeyedSemaphore,
    answerOf: (attempt: Attempt) => Promise<T>,
  ): Promise<T> {
    const { destination, signal } = request;
    const { destinations, clock, ids, config, logger } = this.parts;
    const isResting = await this.#check(request);
    const usual = request.retries ?? (request.method === 'GET' || request.method === 'PUT' ? 'short' : 'none');
    const plan = isResting ? 'none' : usual;
    const { tries, longestPauseMs } = retryPlan(config, plan);
    const untilMs = plan === 'short' ? clock.monotonicMs() + this.#timeoutOf(request) : Infinity;
    for (let attempt = 1; ; attempt++) {
      const startedAtMs = clock.monotonicMs();
      try {
        let taken: T;
        try {
          taken = await this.#attempt(request, places, answerOf);
        } finally {
          LogContext.spent('serversMs', clock.monotonicMs() - startedAtMs, () => `${request.method} ${destination}`);
        }
        await destinations.alive(destination);
        return taken;
      } catch (error) {
        const failure = failureOf(destination, error);
        if (this.#closed) throw failure;
        const pauseMs = pauseBefore(plan, attempt, longestPauseMs, failure, ids);
        const isOver = attempt >= tries || clock.monotonicMs() >= untilMs || signal?.aborted === true;
        if (isOver || pauseMs === undefined) {
          if (failure.isDown) {
            if (request.ignoreBackoff !== true) await destinations.failed(destination);
          } else if (failure.status !== undefined) await destinations.alive(destination);
          throw failure;
        }
        logger.debug('A request to another server is tried again', {
          ...{ destination, attempt, reason: failure.reason, status: failure.status },
          pause_ms: pauseMs,
        });
        await clock.sleep(pauseMs, signal);
      }
    }
  }

  /** @returns whether the server could not be reached lately, and is tried all the same because somebody waits */
  async #check({ destination, ignoreBackoff, awaited }: FederationRequest): Promise<boolean> {
    const { keys, destinations } = this.parts;
    const denied = (message: string): FederationRequestError =>
      new FederationRequestError(destination, 'denied', message);
    if (!isValidServerName(destination)) throw denied('This is not the name of a server');
    if (destination === keys.serverName) throw denied('A server makes no requests to itself');
    if (!this.allows(destination)) throw denied(`Federation with ${destination} is not allowed here`);
    if (ignoreBackoff === true) return false;
    const { retryAtTs } = await destinations.state(destination);
    if (retryAtTs === 0) return false;
    if (awaited === true && destinations.mayProbe(destination)) return true;
    throw new FederationRequestError(destination, 'backing_off', `${destination} could not be reached lately`, {
      retryAfterMs: retryAtTs - this.parts.clock.nowMs(),
    });
  }

  #timeoutOf({ timeoutMs }: FederationRequest): number {
    return timeoutMs ?? this.parts.config.get('federation.client_timeout');
  }

  async #attempt<T>(
    request: FederationRequest,
    places: KeyedSemaphore,
    answerOf: (attempt: Attempt) => Promise<T>,
  ): Promise<T> {
    const { destination } = request;
    const timeoutMs = this.#timeoutOf(request);
    const silenceMs = request.silenceMs ?? timeoutMs;
    const patience = new Patience({ timeoutMs, silenceMs, wanted: request.signal });
    let release: (() => void) | undefined;
    const explain = (error: unknown): FederationRequestError => {
      const failed = (reason: FederationFailure, message: string): FederationRequestError =>
        new FederationRequestError(destination, reason, message);
      if (error instanceof FederationRequestError) return error;
      const { givenUp } = patience;
      if (givenUp === 'unwanted') return failed('aborted', `The request to ${destination} was given up`);
      // Whose turn did not come knows nothing of the other server.
      if (error instanceof QueueFullError || (givenUp === 'timeout' && release === undefined))
        return failed('busy', `Too many requests to ${destination} wait`);
      if (givenUp === 'timeout') return failed('timeout', `${destination} did not answer within ${timeoutMs} ms`);
      if (givenUp === 'silence') return failed('timeout', `${destination} said nothing for ${silenceMs} ms`);
      return failureOf(destination, error);
    };
    const done = (): void => {
      patience.end();
      release?.();
    };
    const counted = (status: number): void => this.#responseCount.inc({ method: request.method, code: String(status) });
    try {
      release = places.tryAcquire(destination) ?? (await places.acquire(destination, { signal: patience.signal }));
      patience.begin();
      return await answerOf({ patience, done, explain, counted });
    } catch (error) {
      done();
      throw explain(error);
    }
  }

  /** What is to be sent, and by which connections. */
  async #prepare(
    request: FederationRequest,
    signal: AbortSignal,
  ): Promise<{ readonly pool: Pool; readonly options: Dispatcher.RequestOptions }> {
    const { destination, method } = request;
    const { keys, connections, userAgent } = this.parts;
    const uri = targetOnWire(this.parts.config, requestUri(request.path, request.query));
    const canonicalContent =
      request.canonicalContent ?? (request.content === undefined ? undefined : canonicalJson(request.content));
    const signed = { method, uri, origin: keys.serverName, destination, canonicalContent };
    const hostHeader =
      connections.knownHostHeaderOf(destination) ?? (await untilAborted(connections.hostHeaderOf(destination), signal));
    await loadUndici();
    // Who does without what a request was for that failed by the end of this server must not go on with the next one.
    if (this.#closed) throw new FederationRequestError(destination, 'aborted', 'This server stops');
    this.#requestCount.inc({ method });
    const headers = {
      host: hostHeader,
      authorization: authorizationHeader(signed, keys.current),
      accept: 'application/json',
      'accept-encoding': 'gzip',
      'user-agent': userAgent,
      ...LogContext.spans()?.headersFor(destination),
      ...(canonicalContent === undefined ? {} : { 'content-type': 'application/json' }),
    };
    return {
      pool: connections.to(destination),
      options: { method, path: uri, headers, body: canonicalContent ?? null },
    };
  }
}

/** One try of a request. */
interface Attempt {
  readonly patience: Patience;
  /** The other server may be asked the next thing. */
  readonly done: () => void;
  /** Turns what went wrong into what is told. */
  readonly explain: (error: unknown) => FederationRequestError;
  /** Counts an answer. */
  readonly counted: (status: number) => void;
}

/** The parts of a request that the short forms take. */
export type RequestOptions = Pick<
  FederationRequest,
  'timeoutMs' | 'silenceMs' | 'maxBytes' | 'retries' | 'ignoreBackoff' | 'awaited' | 'signal'
>;

function refusalOf(destination: string, { status, headers, body: bytes }: FederationResponse): FederationRequestError {
  let body: JsonObject | undefined;
  try {
    const parsed = parsePlain(bytes.toString('utf8'));
    if (isJsonObject(parsed)) body = parsed;
  } catch {
    // The status says enough.
  }
  const errcode = typeof body?.['errcode'] === 'string' ? body['errcode'].slice(0, 255) : undefined;
  const seconds = Number(headers['retry-after'] ?? Number.NaN);
  const told = body?.['retry_after_ms'];
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : typeof told === 'number' ? told : undefined;
  const message = `${destination} answered with status ${status}${errcode === undefined ? '' : ` ${errcode}`}`;
  return new FederationRequestError(destination, 'status', message, { status, errcode, retryAfterMs, body });
}

/** The body of an error as far as it came: the status says enough. */
async function readError(stream: Readable): Promise<Buffer> {
  return buffer(stream).catch(() => Buffer.alloc(0));
}

/** Whoever takes it on may recurse. @throws SyntaxError also for what is nested too deeply */
function parsePlain(text: string): unknown {
  if (isNestedTooDeeply(text, maxNesting)) throw new SyntaxError('nested too deeply');
  return JSON.parse(text);
}

/** In slices where it is long: the state of a large room has hundreds of megabytes. */
async function jsonObjectOf(destination: string, { body }: FederationResponse, rules: JsonRules): Promise<JsonObject> {
  let parsed: unknown;
  try {
    parsed = await parseJsonInSlices(body, rules);
  } catch {
    throw new FederationRequestError(destination, 'bad_response', `${destination} did not answer with JSON`);
  }
  if (isJsonObject(parsed)) return parsed;
  throw new FederationRequestError(destination, 'bad_response', `${destination} did not answer with a JSON object`);
}
