import { type OutboundConnect, OutboundError, type OutboundHttp } from '@rookery/http';
import { Readable } from 'node:stream';
import { DialError } from '../network/dial-error.js';
import type { WayOut } from '../network/way-out.js';
import type { FederationClient, FederationStream } from './federation-client.js';
import { FederationRequestError } from './federation-request-error.js';
import { boundaryOf, MultipartError, type MultipartPart, MultipartReader } from './multipart.js';
import { federationPath, type RequestQuery } from './request-path.js';

/** What is wanted of another server's media. */
export interface MediaRequest {
  readonly destination: string;
  readonly mediaId: string;
  /** Largest content, bytes. */
  readonly maxBytes: number;
  /** For everything, milliseconds. */
  readonly timeoutMs: number;
  /** How long the other server may wait for an upload that is still to come, milliseconds. Default 20 s. */
  readonly uploadWaitMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The wanted size of a thumbnail. */
export interface ThumbnailSize {
  readonly width: number;
  readonly height: number;
  readonly method: 'crop' | 'scale';
  readonly animated?: boolean | undefined;
}

/** Content as it arrives. */
export interface RemoteContent {
  /** Fails with {@link FederationRequestError}. Must be read or destroyed. */
  readonly body: Readable;
  /** As the other server says; not to be trusted. */
  readonly contentType: string | undefined;
  readonly contentDisposition: string | undefined;
  /** As announced. */
  readonly sizeBytes: number | undefined;
}

/** Room for the headers and the description around the content, bytes. */
const wrappingBytes = 131_072;
const maxDescriptionBytes = 65_536;

/** How {@link OutboundHttp} connects by a way that is not the usual one. */
export const wayTo =
  (way: WayOut): OutboundConnect =>
  async ({ host, port, isSecure }) => {
    try {
      return await way.connect({ host, port }, isSecure ? 'https' : 'http', AbortSignal.timeout(way.limitMs));
    } catch (error) {
      if (!(error instanceof DialError)) throw error;
      const known = error.reason === 'blocked' || error.reason === 'timeout';
      throw new OutboundError(known ? error.reason : 'connection', error.message);
    }
  };

/** Media of other servers. @spec server-server-api#content-repository */
export class FederationMedia {
  constructor(
    private readonly client: FederationClient,
    private readonly outbound: OutboundHttp,
  ) {}

  /** The content of a media id, from the server that has it. @throws FederationRequestError */
  download(request: MediaRequest): Promise<RemoteContent> {
    return this.#fetch(request, 'download', {});
  }

  /** A thumbnail that the other server makes. @throws FederationRequestError */
  thumbnail(request: MediaRequest, { width, height, method, animated }: ThumbnailSize): Promise<RemoteContent> {
    return this.#fetch(request, 'thumbnail', { width, height, method, animated });
  }

  async #fetch(request: MediaRequest, kind: 'download' | 'thumbnail', size: RequestQuery): Promise<RemoteContent> {
    const { destination, mediaId, maxBytes, timeoutMs, signal } = request;
    const query = { ...size, timeout_ms: request.uploadWaitMs ?? 20_000 };
    const common = { destination, method: 'GET', timeoutMs, signal, awaited: true } as const;
    let answer: FederationStream;
    try {
      answer = await this.client.stream({
        ...{ ...common, query, maxBytes: maxBytes + wrappingBytes },
        path: `/_matrix/federation/v1/media/${kind}${federationPath`/${mediaId}`}`,
      });
    } catch (error) {
      if (!isUnknownEndpoint(error)) throw error;
      // Servers from before 1.11 know the older, open way only; without `allow_redirect` they must give the content itself.
      const open = await this.client.stream({
        ...{ ...common, maxBytes, query: { ...query, allow_remote: false } },
        path: `/_matrix/media/v3/${kind}${federationPath`/${destination}/${mediaId}`}`,
      });
      return contentOf(open.body, (name) => textOf(open.headers[name]));
    }
    try {
      return await this.#unwrap(request, answer);
    } catch (error) {
      answer.body.destroy();
      throw failureOf(destination, error);
    }
  }

  /** A description as JSON comes first, then the content or where it is. */
  async #unwrap(request: MediaRequest, { headers, body }: FederationStream): Promise<RemoteContent> {
    const { destination, maxBytes, timeoutMs, signal } = request;
    const boundary = boundaryOf(textOf(headers['content-type']) ?? '');
    if (boundary === undefined) throw new MultipartError('The answer is not multipart');
    const reader = new MultipartReader(body, boundary);
    let described = 0;
    for await (const chunk of (await partOf(reader)).body) {
      described += chunk.length;
      if (described > maxDescriptionBytes) throw new MultipartError('The description is too long');
    }
    const part = await partOf(reader);
    const location = part.headers.get('location');
    if (location !== undefined) {
      body.destroy();
      const elsewhere = await this.outbound.stream({
        ...{ url: location, maxBytes, timeoutMs },
        ...(signal === undefined ? {} : { signal }),
      });
      if (elsewhere.status === 200)
        return contentOf(explained(elsewhere.body, destination), (name) => textOf(elsewhere.headers[name]));
      elsewhere.body.destroy();
      const message = `The media of ${destination} is not where it says`;
      throw new FederationRequestError(destination, 'bad_response', message);
    }
    const content = Readable.from(boundedPart(part, destination, maxBytes), { objectMode: false });
    content.once('close', () => body.destroy());
    content.on('error', () => undefined);
    return contentOf(content, (name) => part.headers.get(name));
  }
}

async function partOf(reader: MultipartReader): Promise<MultipartPart> {
  const part = await reader.next();
  if (part === undefined) throw new MultipartError('A part is missing');
  return part;
}

async function* boundedPart(part: MultipartPart, destination: string, maxBytes: number): AsyncGenerator<Buffer> {
  let seen = 0;
  try {
    for await (const chunk of part.body) {
      seen += chunk.length;
      if (seen > maxBytes)
        throw new FederationRequestError(destination, 'too_large', `The media of ${destination} is too large`);
      yield chunk;
    }
  } catch (error) {
    throw failureOf(destination, error);
  }
}

async function* explainedChunks(body: Readable, destination: string): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of body) yield chunk as Buffer;
  } catch (error) {
    throw failureOf(destination, error);
  }
}

function explained(body: Readable, destination: string): Readable {
  const content = Readable.from(explainedChunks(body, destination), { objectMode: false });
  content.once('close', () => body.destroy());
  content.on('error', () => undefined);
  return content;
}

function failureOf(destination: string, error: unknown): FederationRequestError {
  if (error instanceof FederationRequestError) return error;
  if (error instanceof OutboundError) {
    const known = error.reason === 'timeout' || error.reason === 'too_large' || error.reason === 'blocked';
    const reason = known ? error.reason : error.reason === 'connection' ? 'unreachable' : 'bad_response';
    return new FederationRequestError(destination, reason, error.message, { cause: error });
  }
  const text = error instanceof Error ? error.message : String(error);
  return new FederationRequestError(destination, 'bad_response', `${destination}: ${text}`, { cause: error });
}

/**
 * Whether a server does not know an endpoint, rather than what was asked for there: older ones say 400, and whoever gives no code
 * did not look at the media at all.
 */
const isUnknownEndpoint = (error: unknown): boolean =>
  error instanceof FederationRequestError &&
  (((error.status === 404 || error.status === 400) &&
    (error.errcode === 'M_UNRECOGNIZED' || error.errcode === undefined)) ||
    error.status === 405);

function contentOf(body: Readable, header: (name: string) => string | undefined): RemoteContent {
  const length = header('content-length');
  return {
    body,
    contentType: header('content-type'),
    contentDisposition: header('content-disposition'),
    sizeBytes: length !== undefined && /^\d{1,15}$/.test(length) ? Number(length) : undefined,
  };
}

const textOf = (header: string | string[] | undefined): string | undefined =>
  typeof header === 'string' ? header : header?.[0];
