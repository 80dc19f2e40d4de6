import type { HttpApp, InboundRequest } from '@rookery/http';
import type { ModuleDispatcher } from '@rookery/module-host';
import { LogContext } from '@rookery/platform';
import { Readable } from 'node:stream';

/** Serves the paths that modules registered, beside the server's own. */
export class WebResources {
  readonly #mounted = new Set<string>();

  constructor(
    private readonly http: HttpApp,
    private readonly dispatcher: ModuleDispatcher,
  ) {}

  /** Takes over paths that are new since the last call. Those that are gone answer 404. */
  refresh(): void {
    for (const prefix of this.dispatcher.webPrefixes) {
      if (this.#mounted.has(prefix)) continue;
      this.#mounted.add(prefix);
      this.http.mount(prefix, (request, { ip }) => {
        addresses.set(request, ip);
        return this.dispatcher.answerWeb(request, { ip });
      });
    }
  }
}

/** From where requests came that modules are answering; a module hands the request back, not the address. */
const addresses = new WeakMap<Request, string>();

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
    body: undefined,
    stream: Readable.from([]),
    ip: addresses.get(request) ?? '',
    userAgent: request.headers.get('user-agent') ?? '',
    signal: request.signal,
  };
}
