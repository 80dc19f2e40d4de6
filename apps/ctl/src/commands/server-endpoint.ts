import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Config, Listener } from '@rookery/platform';
import { CommandError } from '../command-error.js';

/** How long the server may take. */
const timeoutMs = 30_000;
/** Longest answer read, bytes. */
const answerLimit = 1024 * 1024;

/** An address at which a running server answers. */
export interface ServerEndpoint {
  readonly url: string;
  /** The unix socket that leads there. */
  readonly socketPath?: string;
  /** The settings name it, on this machine: no certificate is for `localhost`. */
  readonly isOwn?: boolean;
}

/** What a server answered, whatever the status. */
export interface ServerAnswer {
  readonly status: number;
  readonly text: string;
}

/** How a person knows it. */
export const nameOf = ({ url, socketPath }: ServerEndpoint): string =>
  socketPath === undefined ? url : `${socketPath} (${new URL(url).pathname})`;

/** The address that somebody gave. @throws CommandError when it is none */
export function givenEndpoint(url: string, path: string): ServerEndpoint {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new CommandError(`${url} is not an http:// or https:// address`, 2);
  return { url: `${url.replace(/\/+$/, '')}${path}` };
}

/** Where the settings make the server listen for clients and administrators: without TLS, if possible. `undefined`: nowhere. */
export function ownEndpoint(config: Config, path: string): ServerEndpoint | undefined {
  const serving = config
    .get('listeners')
    .filter(({ type, resources }) => type === 'http' && resources.some(({ names }) => names.includes('client')));
  const plain = serving.find((one) => one.port !== undefined && !one.tls);
  if (plain) return { url: `http://${hostOf(plain)}:${plain.port}${path}` };
  const socketPath = serving.find((one) => one.path !== undefined)?.path;
  if (socketPath !== undefined) return { url: `http://localhost${path}`, socketPath };
  const encrypted = serving.find((one) => one.port !== undefined);
  return encrypted && { url: `https://${hostOf(encrypted)}:${encrypted.port}${path}`, isOwn: true };
}

/**
 * Asks a running server.
 * @param body goes as JSON in a `POST`
 * @throws CommandError when it cannot be reached
 */
export async function askServer(endpoint: ServerEndpoint, body: object | undefined): Promise<ServerAnswer> {
  try {
    const answer = await send(endpoint, body && JSON.stringify(body));
    return { status: answer.statusCode ?? 0, text: await textOf(answer) };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new CommandError(`Cannot reach ${nameOf(endpoint)}: ${code ?? message}. Is the server running?`);
  }
}

function send({ url, socketPath, isOwn = false }: ServerEndpoint, body: string | undefined): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const request = url.startsWith('https:') ? httpsRequest : httpRequest;
  request(
    url,
    {
      ...(body !== undefined && { method: 'POST', headers: { 'content-type': 'application/json' } }),
      ...{ socketPath, rejectUnauthorized: !isOwn, signal: AbortSignal.timeout(timeoutMs), agent: false },
    },
    resolve,
  )
    .on('error', reject)
    .end(body);
  return promise;
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > answerLimit) {
      answer.destroy();
      return '';
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function hostOf({ bind_addresses: [address] = [] }: Listener): string {
  const any = address === undefined || address === '0.0.0.0' || address === '::';
  return any ? 'localhost' : address.includes(':') ? `[${address}]` : address;
}
