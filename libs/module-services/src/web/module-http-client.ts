import { OutboundError, type OutboundHttp, type OutboundRequest, type OutboundResponse } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { HttpAnswer, HttpClient, HttpRequestOptions } from '@rookery/module-api';

const defaultTimeoutMs = 10_000;
const longestTimeoutMs = 3_600_000;
const largestAnswerBytes = 1_073_741_824;
const methods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE']);

type Method = NonNullable<OutboundRequest['method']>;

/** `api.httpClient`: requests of modules, behind the server's address guard and proxies. */
export function httpClient(http: OutboundHttp): HttpClient {
  const send = async (
    method: Method,
    url: string,
    body: string | Uint8Array | undefined,
    options: HttpRequestOptions = {},
    headers: Readonly<Record<string, string>> = {},
  ): Promise<OutboundResponse> => {
    checkNumber('A timeout, in milliseconds,', options.timeoutMs, longestTimeoutMs);
    checkNumber('The size of an answer, in bytes,', options.maxSizeBytes, largestAnswerBytes);
    try {
      return await http.request({
        method,
        url: withQuery(url, options.query),
        headers: { ...headers, ...options.headers },
        timeoutMs: Math.floor(options.timeoutMs ?? defaultTimeoutMs),
        ...(body === undefined ? {} : { body }),
        ...(options.maxSizeBytes === undefined ? {} : { maxBytes: options.maxSizeBytes }),
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      });
    } catch (error) {
      throw error instanceof OutboundError ? badGateway(error.message) : error;
    }
  };
  const json = async (
    method: Method,
    url: string,
    body: string | undefined,
    contentType: string,
    options?: HttpRequestOptions,
  ): Promise<unknown> => {
    const headers = { accept: 'application/json', ...(body === undefined ? {} : { 'content-type': contentType }) };
    const response = succeeded(await send(method, url, body, options, headers));
    try {
      return JSON.parse(response.body.toString('utf8')) as unknown;
    } catch {
      throw badGateway(`${response.url.host} did not answer with JSON`);
    }
  };
  return Object.freeze({
    getJson: (url, options) => json('GET', url, undefined, '', options),
    postJsonGetJson: (url, body, options) => json('POST', url, JSON.stringify(body), 'application/json', options),
    putJson: (url, body, options) => json('PUT', url, JSON.stringify(body), 'application/json', options),
    postUrlencodedGetJson: (url, fields, options) =>
      json('POST', url, new URLSearchParams(fields).toString(), 'application/x-www-form-urlencoded', options),
    getFile: async (url, options) => answerOf(succeeded(await send('GET', url, undefined, options))),
    async request(method, url, body, options) {
      const name = method.toUpperCase();
      if (!isMethod(name)) throw new RangeError(`A method is one of ${[...methods].join(', ')}`);
      return answerOf(await send(name, url, body, options));
    },
  } satisfies HttpClient);
}

/** Timers take anything, and nothing is larger than what is no number. */
function checkNumber(what: string, value: number | undefined, largest: number): void {
  if (value === undefined || (typeof value === 'number' && value >= 1 && value <= largest)) return;
  throw new RangeError(`${what} is a number from 1 to ${largest}`);
}

const isMethod = (name: string): name is Method => methods.has(name);

const badGateway = (message: string): MatrixError => MatrixError.badGateway(message);

function withQuery(url: string, query: Readonly<Record<string, string>> | undefined): string {
  if (query === undefined) return url;
  if (!URL.canParse(url)) throw badGateway('The address is not a URL');
  const result = new URL(url);
  for (const [name, value] of Object.entries(query)) result.searchParams.append(name, value);
  return result.href;
}

function succeeded(response: OutboundResponse): OutboundResponse {
  const { status, url } = response;
  if (status >= 200 && status <= 299) return response;
  throw badGateway(`${url.host} answered with status ${status}`);
}

function answerOf({ status, headers, body }: OutboundResponse): HttpAnswer {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) texts[name] = typeof value === 'string' ? value : value.join(', ');
  }
  return { status, headers: texts, body };
}
