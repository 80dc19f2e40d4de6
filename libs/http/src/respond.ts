import { MatrixError } from '@rookery/matrix-types';
import { validateHeaderValue } from 'node:http';
import { Readable, pipeline } from 'node:stream';
import { pipeline as piped } from 'node:stream/promises';
import { createGzip, gzip } from 'node:zlib';
import { jsonParts } from './json-parts.js';
import type { RequestContext } from './request-context.js';
import { type Body, isInParts, pour, sliceBytes, slicesOf } from './pour.js';
import { HttpReply } from './reply.js';

/**
 * On every answer, errors included, so that web clients of any origin can talk to us.
 * @spec client-server-api#web-browser-clients
 */
export const corsHeaders = {
  'access-control-allow-origin': '*',
  // PATCH is for what goes to programs beside the server (MSC4512).
  'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
  // The conditional ones are those of the older rendezvous (MSC4108).
  'access-control-allow-headers': 'X-Requested-With, Content-Type, Authorization, Date, If-Match, If-None-Match',
  // What a client in a browser has to see beside what browsers show anyway.
  'access-control-expose-headers': 'Retry-After, ETag, Date',
} as const;

const jsonHeaders = {
  ...corsHeaders,
  'content-type': 'application/json',
  'cache-control': 'no-cache, no-store, must-revalidate',
};

/** Smallest body worth compressing, bytes. */
const compressFromBytes = 1024;
/** Largest body that is compressed in one piece, bytes. */
const compressAtOnceBytes = 1_048_576;
/** How long what is left of a request's body may trickle in after its answer. */
const leftoverTimeoutMs = 10_000;

/** What a streamed answer has on its way at a time, bytes. */
const streamedBytes = 131_072;

type Headers = Record<string, string | number | string[]>;
function sizeOf(body: Body): number {
  if (typeof body === 'string') return Buffer.byteLength(body);
  return isInParts(body) ? body.reduce((size, part) => size + part.length, 0) : body.length;
}

/** Keeps a client from sending a refused body for ever, without cutting off the answer it is to read. To be called before that is written. */
export function discardLeftover(context: RequestContext): void {
  const { raw } = context;
  if (raw.complete || raw.destroyed || !context.hasBody) return;
  const timer = setTimeout(() => raw.socket.destroy(), leftoverTimeoutMs);
  timer.unref();
  raw.once('end', () => clearTimeout(timer)).once('close', () => clearTimeout(timer));
  context.discardBody();
}

function write(context: RequestContext, status: number, headers: Headers, body: Body): void {
  const { response } = context;
  if (response.destroyed) return;
  context.sentBytes = sizeOf(body);
  headers['content-length'] = context.sentBytes;
  discardLeftover(context);
  response.writeHead(status, headers);
  if (context.method === 'HEAD') response.end();
  else if (isInParts(body) || context.sentBytes > sliceBytes) pour(response, body);
  else response.end(body);
  context.noteUnread(context.sentBytes);
}

const mayCompress = (context: RequestContext, body: Body): boolean =>
  context.listener.compress &&
  sizeOf(body) >= compressFromBytes &&
  /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(String(context.headers['accept-encoding'] ?? ''));

function send(context: RequestContext, status: number, headers: Headers, body: Body): void {
  if (context.listener.compress) headers['vary'] = ['Accept-Encoding', headers['vary'] ?? []].flat().join(', ');
  if (headers['content-encoding'] !== undefined || !mayCompress(context, body))
    return write(context, status, headers, body);
  // Once the body is packed, nobody is there to catch.
  for (const [name, value] of Object.entries(headers))
    for (const one of [value].flat()) validateHeaderValue(name, String(one));
  const packed = (error: Error | null, parts: Body): void => {
    if (error === null) write(context, status, { ...headers, 'content-encoding': 'gzip' }, parts);
    else write(context, status, headers, body);
  };
  if (sizeOf(body) > compressAtOnceBytes)
    inParts(context, body).then(
      (parts) => packed(null, parts),
      (error: unknown) => packed(error as Error, []),
    );
  else gzip(isInParts(body) ? Buffer.concat(body) : body, packed);
}

/** A long body, packed a part at a time: as a whole it would be copied before and after, each time within a turn of the event loop. */
async function inParts({ response }: RequestContext, body: Body): Promise<readonly Uint8Array[]> {
  const parts: Uint8Array[] = [];
  await piped(slicesOf(body), createGzip({ chunkSize: sliceBytes }), async (packed: AsyncIterable<Uint8Array>) => {
    for await (const part of packed) {
      // For nobody it would take as long.
      if (response.destroyed) return;
      parts.push(part);
    }
  });
  return parts;
}

function sendStream(
  context: RequestContext,
  status: number,
  headers: Headers,
  body: Readable,
  heldBytes: number,
): void {
  const { response } = context;
  if (response.destroyed || context.method === 'HEAD') {
    body.destroy();
    if (response.destroyed) return;
  }
  discardLeftover(context);
  response.writeHead(status, headers);
  if (context.method === 'HEAD') response.end();
  // A source that fails half-way leaves the answer short: the connection is destroyed, which the client notices.
  else {
    pipeline(body, response, () => undefined);
    context.noteUnread(streamedBytes + heldBytes, true);
  }
}

/**
 * Answers a request. The only place where answers are written, so that all of them carry the headers they must. A second
 * answer to the same request is dropped.
 * @param result an {@link HttpReply}, or an object that goes out as JSON with status 200; `undefined` goes out as `{}`
 * @throws Error when the result cannot be sent (a cycle, a header with a line break); another answer may be given then
 */
export function respond(context: RequestContext, result: unknown): void {
  if (context.answered) return;
  context.answered = true;
  const [telling, turn] = [context.store.told?.(), context.turnToWrite()];
  const wait = telling === undefined || turn === undefined ? (telling ?? turn) : Promise.all([telling, turn]);
  if (wait === undefined) answer(context, result);
  else
    wait.then(
      () => answerLater(context, result, turn !== undefined),
      () => {
        drop(result);
        context.cut();
      },
    );
}

/** @param isLarge what is long is written a part at a time */
async function answerLater(context: RequestContext, result: unknown, isLarge: boolean): Promise<void> {
  try {
    // Written for nobody it would take as long.
    if (context.response.destroyed) drop(result);
    else if (isLarge && !(result instanceof HttpReply))
      send(context, 200, { ...jsonHeaders }, await jsonParts(result ?? {}));
    else answer(context, result);
  } catch {
    context.answered = context.response.headersSent;
    respondError(context, undefined, () => undefined);
  }
}

/** Lets go of an answer that nobody gets any more: a stream holds a file, or a connection. */
function drop(result: unknown): void {
  if (result instanceof HttpReply && result.body instanceof Readable) result.body.destroy();
}

function answer(context: RequestContext, result: unknown): void {
  try {
    if (result instanceof HttpReply) sendReply(context, result);
    else send(context, 200, { ...jsonHeaders }, JSON.stringify(result ?? {}));
  } catch (error) {
    drop(result);
    context.answered = context.response.headersSent;
    throw error;
  }
}

function sendReply(context: RequestContext, { status, headers: own, body, heldBytes }: HttpReply): void {
  const headers: Headers =
    own['content-type'] === 'application/json' ? { ...jsonHeaders, ...own } : { ...corsHeaders, ...own };
  if (body instanceof Readable) sendStream(context, status, headers, body, heldBytes);
  else if (body !== undefined) send(context, status, headers, body);
  else if (status === 204 || status === 304) {
    discardLeftover(context);
    context.response.writeHead(status, headers).end();
  } else write(context, status, headers, '');
}

/** The answer that a {@link MatrixError} becomes. @spec client-server-api#standard-error-response */
export function errorReply(error: MatrixError): HttpReply {
  const headers: Record<string, string> = {};
  const retryAfterMs = error.extra['retry_after_ms'];
  if ((error.status === 429 || error.status === 503) && typeof retryAfterMs === 'number')
    headers['retry-after'] = String(Math.max(0, Math.ceil(retryAfterMs / 1000)));
  return HttpReply.json(error.status, error.toBody(), headers);
}

/**
 * Answers with an error. Anything but a {@link MatrixError} becomes 500 `M_UNKNOWN` without details.
 * @param onUnexpected is told of errors that are not the client's doing; what it gives is the answer
 */
export function respondError(
  context: RequestContext,
  error: unknown,
  onUnexpected: (error: unknown) => MatrixError | undefined,
): void {
  if (MatrixError.is(error)) {
    // Modules may carry another copy of the class: rely on its data alone. Our own may write themselves differently.
    const { status, errcode, message, extra } = error;
    const own = error instanceof MatrixError ? error : MatrixError.passedOn(status, errcode, message, extra);
    respond(context, errorReply(own));
    return;
  }
  // A client that went away while its request ran is nobody's fault.
  const known = context.response.destroyed ? undefined : onUnexpected(error);
  respond(context, errorReply(known ?? MatrixError.internal()));
}
