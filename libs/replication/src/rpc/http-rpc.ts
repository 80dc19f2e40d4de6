import { timingSafeEqual } from 'node:crypto';
import {
  Agent,
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import { Agent as TlsAgent, createServer as createTlsServer, request as tlsRequest } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { isTransient } from '@rookery/database';
import { type AnyErrcode, MatrixError } from '@rookery/matrix-types';
import {
  canSpeak,
  type Logger,
  processProtocol,
  processTls,
  Semaphore,
  SilentLogger,
  spokenWith,
  tooFarApart,
  understands,
} from '@rookery/platform';
import { askForConnection, Openings, type Reply } from './openings.js';
import { type Opening, Rpc, type RpcMethod } from './rpc.js';

/** Where a process answers the others. */
export interface RpcAddress {
  readonly host: string;
  readonly port: number;
  /** The version that it speaks between processes; the first unless told. */
  readonly protocol?: number | undefined;
  /** Whether it wants them encrypted. */
  readonly tls?: boolean | undefined;
}

export interface HttpRpcOptions {
  /** Name of this process; a call to it does not leave it. */
  readonly instance: string;
  /** Number of this process among all that ever were. */
  readonly processNumber?: number | undefined;
  /** Known to the processes of the server alone; goes with each call. */
  readonly secret: string;
  /** Whether calls to this process are encrypted ({@link processTls}); false unless told. */
  readonly encrypted?: boolean | undefined;
  /** Where a process answers, by its name or its number ({@link instanceOf}); `undefined` for one that is not there. */
  readonly addressOf: (instance: string) => RpcAddress | undefined;
  /** Names of all other processes that live. */
  readonly others: () => Iterable<string>;
  readonly logger?: Logger | undefined;
  /** How long a call may take, milliseconds; 20,000 unless told. */
  readonly timeoutMs?: number | undefined;
  /** Most connections that are open for others at a time, and how long nothing may be said by one; 16,384 and 15 minutes unless told. */
  readonly connections?: { readonly max: number; readonly idleMs: number } | undefined;
}

const firstProtocol = 1;

const path = '/_rookery/rpc/';
const maxBodyBytes = 16 * 1024 * 1024;
const maxCalls = 1_000;
const defaultTimeoutMs = 20_000;
/** {@link HttpRpc.callOthers} waits so long for each. */
const othersTimeoutMs = 3_000;

const agentOptions = { keepAlive: true, maxSockets: 64, maxFreeSockets: 8, maxTotalSockets: 1_024 };
const headers = { secret: 'x-rookery-process', protocol: 'x-rookery-protocol' } as const;

/** A call that came to nothing, or of which nobody knows. */
class RpcError extends MatrixError {
  constructor(instance: string, reason: string) {
    super(503, 'M_UNKNOWN', `Another process of the server (${instance}) could not be asked: ${reason}`, {
      retry_after_ms: 1_000,
    });
  }
}

/** Calls between processes over HTTP connections that stay open. */
export class HttpRpc extends Rpc {
  readonly #options: HttpRpcOptions;
  readonly #logger: Logger;
  readonly #handlers = new Map<string, (request: never) => Promise<unknown>>();
  readonly #agent = new Agent(agentOptions);
  readonly #tlsAgent: TlsAgent;
  readonly #calls = new Semaphore(maxCalls, {
    maxWaiting: 10_000,
    refuse: () => new RpcError('any', 'too many calls'),
  });
  readonly #secret: Buffer;
  readonly #openings: Openings;
  /** Calls that were sent and not answered yet. */
  readonly #sent = new Map<ClientRequest, { readonly instance: string; readonly address: RpcAddress }>();
  #server: Server | undefined;
  #answering = 0;

  constructor(options: HttpRpcOptions) {
    super();
    this.#options = options;
    this.#secret = Buffer.from(options.secret);
    this.#tlsAgent = new TlsAgent({ ...agentOptions, ...processTls(options.secret).client, maxCachedSessions: 0 });
    this.#logger = options.logger ?? new SilentLogger();
    this.#openings = new Openings({
      ...{ logger: this.#logger, problemWith: (given) => this.#problemWith(given) },
      ...{ maxOpen: options.connections?.max, maxIdleMs: options.connections?.idleMs },
    });
  }

  override get processNumber(): number | undefined {
    return this.#options.processNumber;
  }

  handle<Request, Response>(
    method: RpcMethod<Request, Response>,
    handler: (request: Request) => Promise<Response>,
  ): void {
    if (this.#handlers.has(method.name)) throw new Error(`The call ${method.name} is answered already`);
    this.#handlers.set(method.name, handler);
  }

  /** Forgets what answers: the process takes another place. */
  forgetHandlers(): void {
    this.#handlers.clear();
    this.#openings.forgetHandlers();
  }

  override handleOpening<Request, Refusal>(
    method: RpcMethod<Request, Refusal>,
    handler: (request: Request, signal: AbortSignal) => Promise<Opening<Refusal>>,
  ): void {
    this.#openings.handle(method.name, handler);
  }

  /** Answers from now on. @param port 0 lets the system choose @returns where */
  async listen(host: string, port = 0): Promise<RpcAddress> {
    const { encrypted = false, secret } = this.#options;
    const take = (req: IncomingMessage, res: ServerResponse): void => {
      this.#answer(req, res).catch((err: unknown) => {
        this.#logger.debug('A call of another process broke off', { err });
        res.destroy();
      });
    };
    const times = { requestTimeout: 60_000, keepAliveTimeout: 75_000 };
    const server = encrypted
      ? createTlsServer({ ...times, ...processTls(secret).server }, take)
      : createServer(times, take);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen({ host, port }, () => {
        server.off('error', reject);
        resolve();
      });
    });
    server.on('upgrade', (req, socket) => void this.#openings.answer(req.url ?? '', req.headers, socket as Socket));
    server.unref();
    this.#server = server;
    const { port: bound } = server.address() as AddressInfo;
    return { host, port: bound, protocol: processProtocol, ...(encrypted && { tls: true }) };
  }

  async call<Request, Response>(
    method: RpcMethod<Request, Response>,
    body: Request,
    instance = this.#options.instance,
  ): Promise<Response> {
    if (instance === this.#options.instance) return asJson(await this.#handle(method.name, asJson(body)));
    const timeoutMs = method.timeoutMs ?? this.#options.timeoutMs ?? defaultTimeoutMs;
    return (await this.#send(instance, method.name, body, timeoutMs)) as Response;
  }

  async callOthers<Request, Response>(
    method: RpcMethod<Request, Response>,
    body: Request,
  ): Promise<ReadonlyMap<string, Response>> {
    const answers = new Map<string, Response>();
    await Promise.all(
      [...this.#options.others()].map(async (name) => {
        try {
          answers.set(name, (await this.#send(name, method.name, body, othersTimeoutMs)) as Response);
        } catch (err) {
          this.#logger.debug('Another process did not answer', { process: name, call: method.name, err });
        }
      }),
    );
    return answers;
  }

  /**
   * Gives up calls to processes that are lost, or are not where they were: they may keep their connections, and answer nothing.
   * @param isLost whether a process that has no address now will not have one again; another one may only be late
   */
  hangUp(isLost: (instance: string) => boolean): void {
    for (const [sent, { instance, address }] of this.#sent) {
      const now = this.#options.addressOf(instance);
      const isGone = now ? now.host !== address.host || now.port !== address.port : isLost(instance);
      if (isGone) sent.destroy(new Error('it is not there any more'));
    }
  }

  override async open<Request, Refusal>(
    { name }: RpcMethod<Request, Refusal>,
    body: Request,
    instance: string,
    signal: AbortSignal,
  ): Promise<Opening<Refusal>> {
    if (instance === this.#options.instance)
      return (await this.#openings.open(name, asJson(body), signal)) as Opening<Refusal>;
    const address = this.#addressOf(instance);
    const { tls: isEncrypted = false } = address;
    const to = {
      ...{ host: address.host, port: address.port, headers: this.#headersFor(address), isEncrypted },
      ...(isEncrypted && processTls(this.#options.secret).client),
    };
    try {
      const opening = await askForConnection(to, name, body, signal, async (response) => ({
        refusal: this.#outcome(instance, response.statusCode ?? 0, parsed(await readBody(response))) as Refusal,
      }));
      return opening;
    } catch (error) {
      if (signal.aborted || MatrixError.is(error)) throw error;
      throw new RpcError(instance, (error as Error).message);
    }
  }

  close(): Promise<void> {
    this.#openings.close();
    this.#agent.destroy();
    this.#tlsAgent.destroy();
    const server = this.#server;
    if (!server) return Promise.resolve();
    return new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  }

  async #handle<T>(name: string, body: unknown): Promise<T> {
    const handler = this.#handlers.get(name) as ((request: unknown) => Promise<T>) | undefined;
    if (!handler) throw new RpcError(this.#options.instance, `nobody answers the call ${name}`);
    return handler(body);
  }

  #send(instance: string, name: string, body: unknown, timeoutMs: number): Promise<unknown> {
    return this.watched(name, () => this.#deliver(instance, name, body, timeoutMs));
  }

  async #deliver(instance: string, name: string, body: unknown, timeoutMs: number): Promise<unknown> {
    const address = this.#addressOf(instance);
    const release = await this.#calls.acquire();
    try {
      const text = Buffer.from(JSON.stringify(body === undefined ? {} : { body }));
      if (text.length > maxBodyBytes)
        throw MatrixError.tooLarge(`A call of another process of the server (${instance}) is too large: ${name}`);
      const { status, answer } = await this.#post(instance, address, name, text, timeoutMs);
      return this.#outcome(instance, status, answer);
    } finally {
      release();
    }
  }

  /** What another process answered. @throws what its handler did; that it could not be asked */
  #outcome(instance: string, status: number, answer: Readonly<Record<string, unknown>>): unknown {
    if (status === 200) return answer['body'];
    const { errcode, error, status: own, ...extra } = answer;
    if (status === 470 && typeof errcode === 'string' && typeof own === 'number')
      throw MatrixError.passedOn(own, errcode as AnyErrcode, String(error), extra);
    throw new RpcError(instance, typeof error === 'string' ? error : `status ${status}`);
  }

  #addressOf(instance: string): RpcAddress {
    const address = this.#options.addressOf(instance);
    if (!address) throw new RpcError(instance, 'it is not there');
    const { protocol: theirs = firstProtocol } = address;
    if (!canSpeak(theirs, processProtocol)) throw new RpcError(instance, tooFarApart(theirs, processProtocol));
    return address;
  }

  #headersFor({ protocol = firstProtocol }: RpcAddress): Record<string, string> {
    return { [headers.secret]: this.#options.secret, [headers.protocol]: String(spokenWith(protocol)) };
  }

  #post(
    instance: string,
    address: RpcAddress,
    name: string,
    text: Buffer,
    timeoutMs: number,
  ): Promise<{ readonly status: number; readonly answer: Readonly<Record<string, unknown>> }> {
    const { host, port, tls = false } = address;
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => reject(new RpcError(instance, error.message));
      const sent = (tls ? tlsRequest : request)(
        {
          ...{ host, port, method: 'POST', path: path + encodeURIComponent(name) },
          agent: tls ? this.#tlsAgent : this.#agent,
          headers: {
            'content-type': 'application/json',
            'content-length': text.length,
            ...this.#headersFor(address),
          },
          signal: AbortSignal.timeout(timeoutMs),
        },
        (response) => {
          readBody(response)
            .then((body) => resolve({ status: response.statusCode ?? 0, answer: parsed(body) }))
            .catch(fail);
        },
      );
      sent.once('error', fail);
      sent.once('close', () => this.#sent.delete(sent));
      this.#sent.set(sent, { instance, address });
      sent.end(text);
    });
  }

  /** What is wrong with who asks. */
  #problemWith(given: IncomingMessage['headers']): Reply | undefined {
    const secret = Buffer.from(String(given[headers.secret] ?? ''));
    if (secret.length !== this.#secret.length || !timingSafeEqual(secret, this.#secret))
      return [403, { error: 'the processes do not share a secret: set the same worker_replication_secret in all' }];
    const version = Number(given[headers.protocol]);
    return understands(version) ? undefined : [426, { error: tooFarApart(processProtocol, version) }];
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const reply = (status: number, body: object): void => {
      const text = Buffer.from(JSON.stringify(body));
      res.writeHead(status, { 'content-type': 'application/json', 'content-length': text.length });
      res.end(text);
    };
    const problem = this.#problemWith(req.headers);
    if (problem !== undefined) return reply(...problem);
    if (req.method !== 'POST' || req.url?.startsWith(path) !== true) return reply(404, { error: 'no such call' });
    if (this.#answering >= maxCalls) return reply(503, { error: 'too many calls' });
    this.#answering++;
    try {
      const { body } = parsed(await readBody(req));
      const answer = await this.#handle(decodeURIComponent(req.url.slice(path.length)), body);
      reply(200, answer === undefined ? {} : { body: answer });
    } catch (error) {
      if (MatrixError.is(error)) return reply(470, { ...error.toBody(), status: error.status });
      if (isTransient(error)) {
        this.#logger.warn('A call of another process could not be answered just now', { call: req.url, err: error });
        return reply(503, { error: 'the database could not do it there just now' });
      }
      this.#logger.error('A call of another process failed', { call: req.url, err: error });
      reply(500, { error: 'the call failed there; see its log' });
    } finally {
      this.#answering--;
    }
  }
}

async function readBody(message: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBodyBytes) throw new Error('the message is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(text);
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

const asJson = <T>(value: T): T => (value === undefined ? value : (JSON.parse(JSON.stringify(value)) as T));
