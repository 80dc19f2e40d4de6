import type { HttpApp, InboundRequest } from '@rookery/http';
import { type ModuleDispatcher, webPathFilter } from '@rookery/module-host';
import { LogContext } from '@rookery/platform';
import { Readable } from 'node:stream';

/** Serves the paths that modules registered, beside the server's own. */
export class WebResources {
  readonly #mounted = new Set<string>();
  #serves = webPathFilter([]);

  constructor(
    private readonly http: HttpApp,
    private readonly dispatcher: ModuleDispatcher,
  ) {}

  /** Takes over paths that are new since the last call. Those that are gone are the server's again, which has none there. */
  refresh(): void {
    this.#serves = webPathFilter(this.dispatcher.summary().flatMap(({ paths }) => paths));
    for (const prefix of this.dispatcher.webPrefixes) {
      if (this.#mounted.has(prefix)) continue;
      const answer = (request: Request, { ip }: { readonly ip: string }): Promise<Response> => {
        addresses.set(request, ip);
        return this.dispatcher.answerWeb(request, { ip });
      };
      this.http.mount(prefix, answer, (path) => this.#serves(path));
      this.#mounted.add(prefix);
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
    json: () => undefined,
    stream: Readable.from([]),
    ip: addresses.get(request) ?? '',
    userAgent: request.headers.get('user-agent') ?? '',
    signal: request.signal,
  };
}
