import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream';
import type { MediaDownloadHeaders } from '@rookery/module-api';
import type { S3Config } from './config.js';
import { amzDate, authorization, encodePath, presignedQuery } from './signature.js';

/** What a client needs of its surroundings. */
export interface S3Surroundings {
  /** Milliseconds since the epoch. */
  now(): number;
  sleep(delayMs: number): Promise<void>;
}

/** The service refused, or cannot be reached. */
export class S3Error extends Error {
  override readonly name = 'S3Error';
  constructor(
    message: string,
    /** HTTP status; `undefined` when there was no answer. */
    readonly status: number | undefined,
    /** What the service calls it. */
    readonly code = '',
  ) {
    super(message);
  }
}

const emptyHash = createHash('sha256').digest('hex');
/** Bytes of the largest file: more than this takes several requests, which this client does not do. */
export const largestBytes = 5 * 1024 ** 3;
const attempts = 3;
const pauseMs = 200;
const longestErrorText = 2_000;

interface Sending {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'DELETE';
  readonly key: string;
  readonly file?: { readonly path: string; readonly sizeBytes: number; readonly sha256: string };
}

/** What these say is over soon, though their status puts the blame on the request. */
const passing = new Set(['RequestTimeout', 'OperationAborted']);
const mayHelpToRetry = (error: unknown): boolean =>
  !(error instanceof S3Error) ||
  error.status === undefined ||
  error.status === 429 ||
  error.status >= 500 ||
  passing.has(error.code);

/** Just enough of S3 to keep files: put, get, head, delete, and addresses for others. Requests that may succeed when repeated are repeated. */
export class S3Client {
  readonly #agent: HttpAgent;
  readonly #host: string;
  readonly #publicHost: string;
  readonly #base: string;

  constructor(
    private readonly config: S3Config,
    private readonly surroundings: S3Surroundings,
  ) {
    const { endpoint, bucket, pathStyle } = config;
    const options = { keepAlive: true, maxSockets: 50, scheduling: 'lifo' } as const;
    this.#agent = endpoint.protocol === 'https:' ? new HttpsAgent(options) : new HttpAgent(options);
    const hostOf = ({ host }: URL): string => (pathStyle ? host : `${bucket}.${host}`);
    this.#host = hostOf(endpoint);
    this.#publicHost = hostOf(config.publicEndpoint);
    this.#base = pathStyle ? `/${bucket}/` : '/';
  }

  /** Uploads a file. @throws S3Error */
  async put(key: string, path: string): Promise<void> {
    const { size: sizeBytes } = await stat(path);
    if (sizeBytes > largestBytes) throw new S3Error(`${key} is too large for one request`, undefined);
    const hash = createHash('sha256');
    for await (const piece of createReadStream(path)) hash.update(piece as Buffer);
    const file = { path, sizeBytes, sha256: hash.digest('hex') };
    await this.#discard(await this.#repeat({ method: 'PUT', key, file }));
  }

  /** The contents of an object; `undefined` when there is none. @throws S3Error */
  async get(
    key: string,
  ): Promise<{ readonly contents: AsyncIterable<Uint8Array>; readonly sizeBytes: number } | undefined> {
    const response = await this.#find({ method: 'GET', key });
    return response && { contents: response, sizeBytes: Number(response.headers['content-length'] ?? Infinity) };
  }

  /** Whether there is an object. @throws S3Error */
  async has(key: string): Promise<boolean> {
    const response = await this.#find({ method: 'HEAD', key });
    if (response) await this.#discard(response);
    return response !== undefined;
  }

  /** Where anybody gets an object for a while, with headers of the server's choice. */
  downloadUrl(key: string, headers: MediaDownloadHeaders, seconds: number): string {
    const { config, surroundings } = this;
    const path = this.#pathOf(key);
    const query = {
      'response-content-type': headers.contentType,
      'response-content-disposition': headers.contentDisposition,
      ...(config.sessionToken === undefined ? {} : { 'X-Amz-Security-Token': config.sessionToken }),
    };
    const wanted = { path, host: this.#publicHost, query, seconds, date: amzDate(surroundings.now()) };
    return `${config.publicEndpoint.protocol}//${this.#publicHost}${path}?${presignedQuery(wanted, config)}`;
  }

  async #find(sending: Sending): Promise<IncomingMessage | undefined> {
    try {
      return await this.#repeat(sending);
    } catch (error) {
      if (error instanceof S3Error && error.status === 404) return undefined;
      throw error;
    }
  }

  #pathOf(key: string): string {
    return encodePath(`${this.#base}${this.config.prefix}${key}`);
  }

  /** Deletes an object; one that is not there is no error. @throws S3Error */
  async delete(key: string): Promise<void> {
    try {
      await this.#discard(await this.#repeat({ method: 'DELETE', key }));
    } catch (error) {
      if (!(error instanceof S3Error && error.status === 404)) throw error;
    }
  }

  /** Ends all connections. */
  close(): void {
    this.#agent.destroy();
  }

  async #repeat(sending: Sending): Promise<IncomingMessage> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#send(sending);
      } catch (error) {
        if (attempt === attempts || !mayHelpToRetry(error)) throw error;
        await this.surroundings.sleep(pauseMs * 4 ** (attempt - 1));
      }
    }
  }

  async #send({ method, key, file }: Sending): Promise<IncomingMessage> {
    const { config } = this;
    const path = this.#pathOf(key);
    const headers: Record<string, string> = {
      host: this.#host,
      'x-amz-content-sha256': file?.sha256 ?? emptyHash,
      'x-amz-date': amzDate(this.surroundings.now()),
      ...(config.sessionToken === undefined ? {} : { 'x-amz-security-token': config.sessionToken }),
      ...(file === undefined ? {} : { ...config.uploadHeaders, 'content-length': String(file.sizeBytes) }),
    };
    const signed = { ...headers, authorization: authorization({ method, path, headers }, config) };
    const response = await this.#exchange(method, path, signed, file?.path);
    const { statusCode = 0 } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    const { code, region } = await errorOf(response);
    const place = response.headers['x-amz-bucket-region'] ?? region;
    // Signatures are good for one region, and a request goes nowhere but to the address in the settings.
    const elsewhere = typeof place === 'string' && place !== config.region && /^[a-z0-9-]{1,40}$/.test(place);
    const hint = elsewhere ? `; the bucket is in the region ${place}: change region, or endpoint` : '';
    throw new S3Error(`${method} ${key}: ${statusCode} ${code}${hint}`, statusCode, code);
  }

  #exchange(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    file: string | undefined,
  ): Promise<IncomingMessage> {
    const { endpoint, timeoutMs } = this.config;
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => reject(new S3Error(`${endpoint.host}: ${error.message}`, undefined));
      const send = endpoint.protocol === 'https:' ? httpsRequest : httpRequest;
      const hostname = this.#host.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
      const request = send({ method, path, headers, hostname, port: endpoint.port, agent: this.#agent });
      request.setTimeout(timeoutMs, () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
      request.on('error', fail).on('response', resolve);
      if (file === undefined) request.end();
      // Closes the file whatever becomes of the request; what went wrong is told by the request.
      else pipeline(createReadStream(file), request, (error) => error && request.destroy(error));
    });
  }

  async #discard(response: IncomingMessage): Promise<void> {
    for await (const piece of response) void piece;
  }
}

/** What the body of a refusal says. */
async function errorOf(response: IncomingMessage): Promise<{ readonly code: string; readonly region: string }> {
  let text = '';
  try {
    for await (const piece of response) {
      text += String(piece);
      if (text.length > longestErrorText) break;
    }
  } catch {
    // What was read has to do.
  }
  const read = (name: string): string => new RegExp(`<${name}>([^<]{1,100})</${name}>`).exec(text)?.[1] ?? '';
  return { code: read('Code'), region: read('Region') };
}
