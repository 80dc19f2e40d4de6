import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  createParamDecorator,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  UseGuards,
} from '@nestjs/common';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import {
  MatrixError,
  type ModuleRequester,
  RedirectError,
  type WebHandler,
  type WebRequestContext,
} from '@rookery/module-api';
import { MatrixApi, MatrixLog } from './services.js';

/** As large as bodies that the server hands to modules. */
const maxBodyBytes = 12.5 * 1024 * 1024;
/** Headers of a connection, which is the server's. */
const ofConnection = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length']);

interface Asked {
  readonly request: Request;
  readonly context: WebRequestContext;
  requester?: ModuleRequester;
}
const asking = new AsyncLocalStorage<Asked>();

/** What answers the requests of one module: Fastify, without a port. */
export function webAdapter(): FastifyAdapter {
  return new FastifyAdapter({ bodyLimit: maxBodyBytes, routerOptions: { ignoreTrailingSlash: true } });
}

/**
 * Hands requests to a web resource, whose path ends in `*`, on to the controllers of an application. Their paths begin where the
 * resource's star stands.
 */
export function webHandler(app: NestFastifyApplication): WebHandler {
  const fastify = app.getHttpAdapter().getInstance();
  return async (request, context) => {
    const { method, url } = request;
    const payload = request.body ? Buffer.from(await request.arrayBuffer()) : undefined;
    const asked: Asked = { request: new Request(url, { headers: request.headers }), context };
    // Awaited inside, since the request begins no sooner.
    const answer = await asking.run(
      asked,
      async () =>
        await fastify.inject({
          method: method as 'GET',
          url: `/${context.params['*'] ?? ''}${new URL(url).search}`,
          headers: Object.fromEntries(request.headers),
          ...(context.ip !== undefined && { remoteAddress: context.ip }),
          ...(payload && { payload }),
        }),
    );
    const headers = new Headers();
    for (const [name, value] of Object.entries(answer.headers)) {
      if (ofConnection.has(name) || value === undefined) continue;
      for (const one of Array.isArray(value) ? value : [value]) headers.append(name, String(one));
    }
    const hasBody = answer.rawPayload.length > 0 && ![204, 205, 304].includes(answer.statusCode);
    return new Response(hasBody ? streamOf(answer.rawPayload) : null, { status: answer.statusCode, headers });
  };
}

/** A body that nobody copies: of bytes, the runtime makes a copy of its own, and another one for who reads them. */
const streamOf = (bytes: Uint8Array): ReadableStream =>
  new ReadableStream({
    start(to) {
      to.enqueue(bytes);
      to.close();
    },
  });

const askedOf = (): Asked => {
  const asked = asking.getStore();
  if (!asked) throw new Error('This is no request to a web resource of the module');
  return asked;
};

/** Lets users of this server pass who send their access token; guests and expired accounts do not. */
@Injectable()
export class MatrixUserGuard implements CanActivate {
  constructor(private readonly api: MatrixApi) {}

  /** @throws MatrixError 401 without a good token, 403 for guests and expired accounts */
  async canActivate(_context: ExecutionContext): Promise<boolean> {
    const asked = askedOf();
    asked.requester ??= await this.api.getUserByReq(asked.request);
    return true;
  }
}

/** Lets administrators of the server pass. */
@Injectable()
export class MatrixAdminGuard extends MatrixUserGuard {
  /** @throws MatrixError as {@link MatrixUserGuard}, and 403 for those who are no administrators */
  override async canActivate(context: ExecutionContext): Promise<boolean> {
    await super.canActivate(context);
    if (askedOf().requester?.isAdmin !== true) throw MatrixError.notAdmin();
    return true;
  }
}

/** A controller, or a method of one, for users of this server: {@link MatrixUserGuard}. */
export const ForUsers = (): ClassDecorator & MethodDecorator => UseGuards(MatrixUserGuard);
/** A controller, or a method of one, for administrators of the server: {@link MatrixAdminGuard}. */
export const ForAdmins = (): ClassDecorator & MethodDecorator => UseGuards(MatrixAdminGuard);

/** Who asks, a `ModuleRequester`: a parameter of a controller's method behind one of the guards. */
export const Requester = createParamDecorator((): ModuleRequester => {
  const { requester } = askedOf();
  if (!requester) throw new Error('Nobody was asked for: add @ForUsers() or @ForAdmins()');
  return requester;
});

/** What the server knows of the request beside Nest's own, a `WebRequestContext`: a parameter of a controller's method. */
export const WebContext = createParamDecorator((): WebRequestContext => askedOf().context);

/** Codes for what Nest's own exceptions say by their status alone. */
const codes: Readonly<Record<number, string>> = {
  400: 'M_INVALID_PARAM',
  401: 'M_MISSING_TOKEN',
  403: 'M_FORBIDDEN',
  404: 'M_NOT_FOUND',
  405: 'M_UNRECOGNIZED',
  413: 'M_TOO_LARGE',
  429: 'M_LIMIT_EXCEEDED',
};

interface Reply {
  status(status: number): Reply;
  header(name: string, value: string): Reply;
  send(body?: unknown): unknown;
}

/** Answers as Matrix does what a filter of the module has not answered: `errcode` and `error`. */
@Catch()
export class MatrixErrors implements ExceptionFilter {
  constructor(private readonly log: MatrixLog) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const reply = host.switchToHttp().getResponse<Reply>();
    if (MatrixError.is(error)) {
      reply.status(error.status).send({ ...error.extra, errcode: error.errcode, error: error.message });
    } else if (RedirectError.is(error)) {
      reply.status(error.status).header('location', error.location).send();
    } else if (isHttpException(error)) {
      const status = error.getStatus();
      reply.status(status).send({ errcode: codes[status] ?? 'M_UNKNOWN', error: wordsOf(error.getResponse()) });
    } else {
      const { statusCode, message } = (error ?? {}) as { statusCode?: unknown; message?: unknown };
      // What Fastify says of a body that it cannot read.
      if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
        reply.status(statusCode).send({ errcode: codes[statusCode] ?? 'M_UNKNOWN', error: String(message) });
        return;
      }
      this.log.error('A controller failed', { err: error });
      reply.status(500).send({ errcode: 'M_UNKNOWN', error: 'A module of this server failed' });
    }
  }
}

interface HttpExceptionLike {
  getStatus(): number;
  getResponse(): unknown;
}

const isHttpException = (error: unknown): error is HttpExceptionLike =>
  typeof error === 'object' &&
  error !== null &&
  typeof (error as HttpExceptionLike).getStatus === 'function' &&
  typeof (error as HttpExceptionLike).getResponse === 'function';

function wordsOf(answer: unknown): string {
  const message = typeof answer === 'string' ? answer : (answer as { message?: unknown } | undefined)?.message;
  return Array.isArray(message) ? message.join('; ') : String(message ?? 'Refused');
}
