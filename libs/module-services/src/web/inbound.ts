import type { InboundRequest } from '@rookery/http';
import { LogContext } from '@rookery/platform';
import { Readable } from 'node:stream';

/** From where requests came that modules are answering; a module hands the request back, not the address. */
const addresses = new WeakMap<Request, string>();

/** Remembers from where a request came, for as long as it is held. */
export const rememberAddress = (request: Request, ip: string): void => void addresses.set(request, ip);

/** A request of the web platform's kind, as the authenticator wants to see it. */
export function inboundOf(request: Request): InboundRequest {
  const url = new URL(request.url);
  const query: Record<string, string | string[]> = {};
  for (const name of new Set(url.searchParams.keys())) {
    const values = url.searchParams.getAll(name);
    query[name] = values.length === 1 ? values[0]! : values;
  }
  return {
    requestId: LogContext.current()?.requestId ?? '',
    method: request.method,
    url: url.pathname + url.search,
    query,
    headers: Object.fromEntries(request.headers),
    json: () => undefined,
    stream: Readable.from([]),
    ip: addresses.get(request) ?? '',
    userAgent: request.headers.get('user-agent') ?? '',
    signal: request.signal,
  };
}
