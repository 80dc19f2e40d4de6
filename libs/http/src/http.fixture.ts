import { Controller, Delete, Get, Module, Param, Post, Put } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { type Requester, SilentLogger, SystemClock, SystemIds, type Timer } from '@rookery/platform';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import {
  Access,
  type AccessOptions,
  client,
  FormBody,
  formOf,
  type InferForm,
  HttpApp,
  HttpReply,
  Inbound,
  type Infer,
  json,
  type InboundRequest,
  JsonBody,
  type InferQuery,
  param,
  Query,
  queryOf,
  RateLimiter,
  RequestAuthenticator,
  stable,
  Who,
} from './index.js';
import { type HttpAppOptions } from './http-app.js';

const clock = new SystemClock();
const tokenQuery = queryOf({ access_token: param.string('The token.') });

/** A small application with a route for each thing to be tried, for the specs of this folder. */
class TestAuthenticator extends RequestAuthenticator {
  override isOfAppservice(request: InboundRequest): boolean {
    return request.headers['authorization'] === 'Bearer appservice';
  }
  async authenticate(request: InboundRequest, access: AccessOptions): Promise<Requester | undefined> {
    const token =
      /^Bearer (\S+)$/.exec(String(request.headers['authorization']))?.[1] ?? tokenQuery.read(request).access_token;
    if (token === undefined && access.auth === 'optional') return undefined;
    if (token === undefined) throw new MatrixError(401, 'M_MISSING_TOKEN', 'Missing access token');
    if (token !== 'good') throw new MatrixError(401, 'M_UNKNOWN_TOKEN', 'Unknown access token', { soft_logout: false });
    return {
      userId: '@alice:test',
      isGuest: false,
      isAdmin: false,
      shadowBanned: false,
      suspended: false,
      locked: false,
    };
  }
}

/** Has nothing left while {@link probes} say so. */
class TestRateLimiter extends RateLimiter {
  async take(limiter: string): Promise<void> {
    if (!(await this.mayTake(limiter))) throw MatrixError.limitExceeded(1500);
  }
  async mayTake(limiter: string): Promise<boolean> {
    return limiter !== 'rc_probe' || !probes.limited;
  }
}

/** What requests to the probes leave for the tests. */
export const probes: {
  waiting: (() => void) | undefined;
  waitedMs: number | undefined;
  limited: boolean;
  /** Large answers that were made so far, are being made, and were at most. */
  made: number;
  making: number;
  mostAtOnce: number;
  /** The last answer that was a stream, and whether its request was given up. */
  streamed: { readonly body: Readable; readonly signal: AbortSignal } | undefined;
  /** The parts of a long answer. */
  long: readonly Uint8Array[];
} = {
  ...{ made: 0, making: 0, mostAtOnce: 0 },
  streamed: undefined,
  long: [],
  limited: false,
  waiting: undefined,
  waitedMs: undefined,
};

const limitQuery = queryOf({ limit: param.integer('How many.', { min: 1, max: 100, clamp: true }) });

const anything = json.described('Anything.', json.anyObject());
const longSchema = json.object({
  list: json.required('What is in it.', json.array(json.unknown())),
  last: json.required('The last of it.', json.number()),
});
const exampleForm = formOf({ a: 'A field.', b: 'Another field.', c: 'One more.' });
const thingSchema = json.object({
  name: json.required('Its name.', json.string({ maxLength: 10 })),
  kind: json.optional('Its kind.', json.enum('a', 'b')),
  list: json.optional('What is in it.', json.array(json.object({ id: json.required('Its number.', json.integer()) }))),
});

@Controller()
class ProbeController {
  @Get(stable('/account/whoami'))
  @Access({ auth: 'required' })
  whoami(@Who() requester: Requester): object {
    return { user_id: requester.userId };
  }

  @Get(stable('/maybe'))
  @Access({ auth: 'optional' })
  maybe(@Who() requester: Requester | undefined): object {
    return { user_id: requester?.userId ?? null };
  }

  @Post(client(['v3'], '/things/:thing'))
  @Access({ auth: 'required' })
  make(@Param('thing') thing: string, @JsonBody(thingSchema) body: Infer<typeof thingSchema>): object {
    return { thing, name: body.name };
  }

  @Put(client(['v3'], '/open'))
  @Access({ auth: 'none' })
  open(@JsonBody(anything) body: Infer<typeof anything>): object {
    return {
      keys: Object.keys(body),
      prototype: Object.getPrototypeOf(body) === Object.prototype,
      polluted: (body as { polluted?: unknown }).polluted ?? null,
    };
  }

  @Put(client(['v3'], '/long'))
  @Access({ auth: 'none', bodyLimitBytes: 2_000_000 })
  long(@JsonBody(longSchema) body: Infer<typeof longSchema>): object {
    return { items: body.list.length, last: body.last };
  }

  @Get(client(['v3'], '/large/:size'))
  @Access({ auth: 'none' })
  large(@Param('size') size: string): object {
    return { text: 'x'.repeat(Number(size)) };
  }

  @Post(client(['v3'], '/optional'))
  @Access({ auth: 'none', bodyLimitBytes: 1000 })
  optional(@JsonBody(anything, { optional: true }) body: Infer<typeof anything>): object {
    return body;
  }

  @Post(client(['v3'], '/ignored'))
  @Access({ auth: 'none' })
  ignored(): undefined {
    return undefined;
  }

  @Post(client(['v3'], '/limited'))
  @Access({ auth: 'none', limiter: 'rc_probe' })
  limited(@JsonBody(anything) body: Infer<typeof anything>): object {
    return body;
  }

  @Post('/_synapse/client/form')
  @Access({ auth: 'none' })
  form(@FormBody(exampleForm) form: InferForm<typeof exampleForm>): object {
    return form;
  }

  @Get(client(['v3'], '/fail/:how'))
  @Access({ auth: 'none' })
  fail(@Param('how') how: string): object {
    if (how === 'limit') throw MatrixError.limitExceeded(1234.5);
    if (how === 'foreign')
      throw Object.assign(new Error('from a module'), {
        $$type: 'MatrixError',
        status: 418,
        errcode: 'ORG.TEA',
        extra: { pot: 1 },
      });
    throw new Error('secret detail');
  }

  @Get(client(['v3'], '/page'))
  @Access({ auth: 'none' })
  page(): HttpReply {
    return HttpReply.html(200, '<p>hello</p>', { 'set-cookie': ['a=1', 'b=2'] });
  }

  @Get(client(['v3'], '/moved'))
  @Access({ auth: 'none' })
  moved(): HttpReply {
    return HttpReply.redirect('https://example.org/');
  }

  @Get(client(['v3'], '/unsendable/:how'))
  @Access({ auth: 'none' })
  unsendable(@Param('how') how: string, @Inbound() { signal }: InboundRequest): unknown {
    if (how === 'cycle') {
      const cycle: Record<string, unknown> = {};
      return Object.assign(cycle, { cycle });
    }
    if (how === 'stream') {
      const body = Readable.from([Buffer.from('one')]);
      probes.streamed = { body, signal };
      return new HttpReply(200, { 'x-a': '\u6f22' }, body);
    }
    if (how === 'redirect') return HttpReply.redirect('https://example.org/é\r\nset-cookie: a=b \ud800');
    return new HttpReply(200, { 'x-a': 'b\r\nset-cookie: a=b' }, 'x'.repeat(5000));
  }

  @Get(client(['v3'], '/stream'))
  @Access({ auth: 'none' })
  stream(@Inbound() { signal }: InboundRequest): HttpReply {
    const body = Readable.from([Buffer.from('one'), Buffer.from('two')]);
    probes.streamed = { body, signal };
    return new HttpReply(200, { 'content-type': 'application/octet-stream' }, body);
  }

  @Get(client(['v3'], '/held/:size'))
  @Access({ auth: 'none' })
  held(@Param('size') size: string): HttpReply {
    const body = new Readable({ read: () => undefined });
    body.push('begun');
    return new HttpReply(200, { 'content-type': 'text/plain' }, body, Number(size));
  }

  @Get(client(['v3'], '/parts'))
  @Access({ auth: 'none' })
  parts(): HttpReply {
    const parts = [Buffer.from('{"text":"'), Buffer.alloc(20_000, 'x'), Buffer.from('ü"}')];
    return new HttpReply(200, { 'content-type': 'application/json' }, parts);
  }

  @Get(client(['v3'], '/long-parts'))
  @Access({ auth: 'none' })
  longParts(): HttpReply {
    return new HttpReply(200, { 'content-type': 'text/plain' }, probes.long);
  }

  @Get(client(['v3'], '/made/:size'))
  @Access({ auth: 'none', largeAnswer: true })
  async made(@Param('size') size: string): Promise<object> {
    probes.made++;
    probes.mostAtOnce = Math.max(probes.mostAtOnce, ++probes.making);
    await new Promise((resolve) => setImmediate(resolve));
    probes.making--;
    return { text: 'x'.repeat(Number(size)) };
  }

  @Get(client(['v3'], '/big'))
  @Access({ auth: 'none' })
  big(): object {
    return { text: 'x'.repeat(20_000) };
  }

  @Get(client(['v3'], '/query'))
  @Access({ auth: 'none' })
  query(@Inbound() request: InboundRequest, @Query(limitQuery) { limit }: InferQuery<typeof limitQuery>): object {
    return {
      query: request.query,
      limit: limit ?? null,
      ip: request.ip,
      id: request.requestId,
    };
  }

  @Get(client(['v3'], '/wait'))
  @Access({ auth: 'none' })
  async wait(@Inbound() request: InboundRequest): Promise<object> {
    probes.waiting?.();
    const started = clock.monotonicMs();
    await new Promise<void>((resolve) => {
      if (request.signal.aborted) resolve();
      request.signal.addEventListener('abort', () => resolve());
      setTimeout(resolve, 20_000).unref();
    });
    probes.waitedMs = clock.monotonicMs() - started;
    return { waitedMs: probes.waitedMs };
  }

  @Get(client(['v3'], '/slow'))
  @Access({ auth: 'none' })
  async slow(): Promise<object> {
    probes.waiting?.();
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { done: true };
  }

  @Put(client(['v3'], '/upload'))
  @Access({ auth: 'required', streamBody: true })
  async upload(@Inbound() request: InboundRequest): Promise<object> {
    let size = 0;
    for await (const chunk of request.stream) size += (chunk as Buffer).length;
    return { size };
  }

  @Get(client(['v3'], '/rooms/:roomId/state/:type'))
  @Access({ auth: 'none' })
  stateOf(@Param('roomId') roomId: string, @Param('type') type: string): object {
    return { roomId, type };
  }

  @Delete(client(['v3'], '/rooms/:id/state/:type'))
  @Access({ auth: 'none' })
  unstate(): object {
    return {};
  }

  @Get('/_matrix/federation/v1/version')
  @Access({ auth: 'none' })
  version(): object {
    return { server: {} };
  }
}

@Module({
  controllers: [ProbeController],
  providers: [
    { provide: RequestAuthenticator, useClass: TestAuthenticator },
    { provide: RateLimiter, useClass: TestRateLimiter },
  ],
  exports: [RequestAuthenticator, RateLimiter],
})
export class ProbeModule {}

/** Stands still until told. */
export class FakeClock extends SystemClock {
  #ms = 0;
  readonly #ticks: (() => void)[] = [];
  override monotonicMs(): number {
    return this.#ms;
  }
  override every(_periodMs: number, fn: () => void): Timer {
    this.#ticks.push(fn);
    return { cancel: () => undefined };
  }
  async advance(byMs: number): Promise<void> {
    this.#ms += byMs;
    for (const tick of this.#ticks) tick();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export const lines: { level: string; message: string; fields: Record<string, unknown> }[] = [];
export class RecordingLogger extends SilentLogger {
  override isEnabled(): boolean {
    return true;
  }
  override info(message?: string, fields?: object): void {
    lines.push({ level: 'info', message: message!, fields: { ...fields } });
  }
  override warn(message?: string, fields?: object): void {
    lines.push({ level: 'warn', message: message!, fields: { ...fields } });
  }
  override error(message?: string, fields?: object): void {
    lines.push({ level: 'error', message: message!, fields: { ...fields } });
  }
}

export const listener = {
  port: 0,
  bindAddresses: ['127.0.0.1'],
  type: 'http',
  resources: [{ names: ['client'] }],
} as const;

export async function start(
  options: Partial<HttpAppOptions> = {},
): Promise<{ app: HttpApp; base: string; port: number }> {
  const app = await HttpApp.create(ProbeModule, {
    serverName: 'test',
    listeners: [listener],
    clock: new SystemClock(),
    ids: new SystemIds(),
    logger: new RecordingLogger(),
    ...options,
  });
  const [address] = await app.listen();
  return { app, port: address!.port!, base: `${address!.tls ? 'https' : 'http'}://127.0.0.1:${address!.port}` };
}

/** Sends bytes as they are; resolves with everything the server says until it closes, that is `enough`, or `untilMs` is over. */
export function raw(port: number, text: string | Buffer, untilMs = 10_000, enough?: RegExp): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    const end = (): void => {
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(end, untilMs);
    socket.on('data', (chunk) => {
      answer += chunk.toString();
      if (enough?.test(answer)) socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(timer);
      end();
    });
  });
}

export const auth = { authorization: 'Bearer good' };
export const errorOf = async (response: Response): Promise<[number, unknown]> => [
  response.status,
  ((await response.json()) as { errcode: unknown }).errcode,
];
