// What the HTTP layer costs: CPU time of the server process per request, for a bare Fastify route and for ours (guard,
// token, request id, metrics, access log off and on), and their ratio. Rounds alternate, the best of each counts.
import { MatrixError } from '@rookery/matrix-types';
import {
  Access,
  type AccessOptions,
  HttpApp,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  RequestAuthenticator,
  Who,
} from '@rookery/http';
import { PinoLogger, type Requester, SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { Controller, Get, Module, Param, Put } from '@nestjs/common';
import { fastify } from 'fastify';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const autocannon = createRequire(import.meta.url)('autocannon') as (options: {
  url: string;
  connections: number;
  duration: number;
  requests: readonly object[];
}) => Promise<{ requests: { total: number; average: number }; non2xx: number; errors: number }>;

const path = '/_matrix/client/v3/rooms/!room%3Aexample.org/send/m.room.message/txn1';
const body = JSON.stringify({ msgtype: 'm.text', body: 'a message of ordinary length, as people write them' });

class BenchAuthenticator extends RequestAuthenticator {
  readonly #requester: Requester = {
    userId: '@alice:example.org',
    isGuest: false,
    isAdmin: false,
    shadowBanned: false,
    suspended: false,
    locked: false,
  };
  async authenticate(request: InboundRequest, _access: AccessOptions): Promise<Requester> {
    if (request.headers['authorization'] !== 'Bearer token')
      throw new MatrixError(401, 'M_UNKNOWN_TOKEN', 'Unknown access token');
    return this.#requester;
  }
}

const schema = json.object({
  msgtype: json.required('The kind of message.', json.string()),
  body: json.optional('Its text.', json.string()),
});

@Controller()
class BenchController {
  @Put('/_matrix/client/v3/rooms/:roomId/send/:type/:txnId')
  @Access({ auth: 'required' })
  async send(
    @Who() requester: Requester,
    @Param('txnId') txnId: string,
    @JsonBody(schema) content: Infer<typeof schema>,
  ): Promise<object> {
    return { event_id: `$${txnId}${requester.userId.length}${content.msgtype}` };
  }
  @Get('/_matrix/client/v3/account/whoami')
  @Access({ auth: 'required' })
  whoami(@Who() requester: Requester): object {
    return { user_id: requester.userId };
  }
}

@Module({
  controllers: [BenchController],
  providers: [{ provide: RequestAuthenticator, useClass: BenchAuthenticator }],
  exports: [RequestAuthenticator],
})
class BenchModule {}

async function bare(): Promise<number> {
  const app = fastify({ routerOptions: { maxParamLength: 500 } });
  const check = (authorization: string | undefined): void => {
    if (authorization !== 'Bearer token') throw new Error('no');
  };
  app.put('/_matrix/client/v3/rooms/:roomId/send/:type/:txnId', { schema: { body: schema } }, async (request) => {
    check(request.headers.authorization);
    return {
      event_id: `$${(request.params as { txnId: string }).txnId}18${(request.body as { msgtype: string }).msgtype}`,
    };
  });
  app.get('/_matrix/client/v3/account/whoami', async (request) => {
    check(request.headers.authorization);
    return { user_id: '@alice:example.org' };
  });
  await app.listen({ port: 0, host: '127.0.0.1' });
  return (app.server.address() as { port: number }).port;
}

async function ours(log: boolean): Promise<number> {
  const app = await HttpApp.create(BenchModule, {
    serverName: 'example.org',
    listeners: [{ port: 0, bindAddresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] }],
    clock: new SystemClock(),
    ids: new SystemIds(),
    logger: log ? PinoLogger.create({ level: 'info', format: 'json', file: '/dev/null' }) : new SilentLogger(),
  });
  return (await app.listen())[0]!.port!;
}

const kinds = { bare, 'rookery, no access log': () => ours(false), rookery: () => ours(true) } as const;
type Kind = keyof typeof kinds;

async function serve(kind: Kind): Promise<void> {
  const port = await kinds[kind]();
  process.on('SIGINT', () => process.exit(0));
  process.on('message', () => process.send!({ cpu: process.cpuUsage() }));
  process.send!({ port });
}

async function measure(): Promise<void> {
  const seconds = Number(process.argv[2] ?? 3);
  const rounds = Number(process.argv[3] ?? 3);
  const requests = {
    'PUT send': {
      method: 'PUT',
      path,
      body,
      headers: { authorization: 'Bearer token', 'content-type': 'application/json' },
    },
    'GET whoami': {
      method: 'GET',
      path: '/_matrix/client/v3/account/whoami',
      headers: { authorization: 'Bearer token' },
    },
  } as const;
  const servers = new Map<Kind, { port: number; cpu: () => Promise<number>; stop: () => void }>();
  for (const kind of Object.keys(kinds) as Kind[]) {
    const child = fork(fileURLToPath(import.meta.url), [`--serve=${kind}`]);
    const [{ port }] = (await once(child, 'message')) as [{ port: number }];
    const cpu = async (): Promise<number> => {
      child.send('cpu');
      const [message] = (await once(child, 'message')) as [{ cpu: NodeJS.CpuUsage }];
      return message.cpu.user + message.cpu.system;
    };
    servers.set(kind, { port, cpu, stop: () => void child.kill() });
  }
  for (const [name, request] of Object.entries(requests)) {
    const best = new Map<Kind, { us: number; rate: number }>();
    for (let round = 0; round <= rounds; round++) {
      for (const [kind, server] of servers) {
        const before = await server.cpu();
        const result = await autocannon({
          url: `http://127.0.0.1:${server.port}`,
          connections: 20,
          duration: round === 0 ? 1 : seconds,
          requests: [request],
        });
        if (result.non2xx > 0 || result.errors > 0)
          throw new Error(`${kind}: ${result.non2xx} refused, ${result.errors} failed`);
        const us = ((await server.cpu()) - before) / result.requests.total;
        // The first round warms up.
        if (round > 0 && us < (best.get(kind)?.us ?? Infinity)) best.set(kind, { us, rate: result.requests.average });
      }
    }
    console.log(`\n${name}`);
    const base = best.get('bare')!.us;
    for (const [kind, { us, rate }] of best) {
      console.log(
        `  ${kind.padEnd(24)} ${us.toFixed(1).padStart(7)} µs CPU/request  ${(us / base).toFixed(2)} × bare  ${Math.round(rate)}/s`,
      );
    }
  }
  for (const { stop } of servers.values()) stop();
}

const role = process.argv.find((argument) => argument.startsWith('--serve='))?.slice('--serve='.length) as
  Kind | undefined;
await (role === undefined ? measure() : serve(role));
