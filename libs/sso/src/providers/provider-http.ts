import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { IpGuard, OutboundHttp, type OutboundRequest, type OutboundResponse, outboundOptionsOf } from '@rookery/http';
import { Config, Metrics } from '@rookery/platform';

const timeoutMs = 10_000;
const maxBytes = 1_048_576;

/**
 * Requests to the providers of the settings: bounded in size and time, by the proxy where there is one. Their addresses are
 * the operator's choice and often lie in the operator's own network, so no range of addresses is closed.
 */
@Injectable()
export class ProviderHttp implements OnModuleDestroy {
  #http: OutboundHttp | undefined;

  constructor(
    private readonly config: Config,
    private readonly metrics: Metrics,
  ) {}

  /** The answer whatever its status. @throws OutboundError */
  request(request: OutboundRequest): Promise<OutboundResponse> {
    const options = outboundOptionsOf(this.config, '', this.metrics);
    this.#http ??= new OutboundHttp({ ...options, userAgent: 'Rookery', guard: new IpGuard([]) });
    return this.#http.request({ timeoutMs, maxBytes, maxRedirects: 0, ...request });
  }

  /** The same as a `fetch`, for libraries that bring their own protocol. */
  readonly fetch = async (
    url: string,
    init: {
      readonly method: string;
      readonly headers: Record<string, string>;
      readonly body?: unknown;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<Response> => {
    const { body } = init;
    const {
      status,
      headers,
      body: answer,
    } = await this.request({
      url,
      method: init.method as 'GET' | 'POST',
      headers: init.headers,
      ...(body === undefined || body === null ? {} : { body: bodyOf(body) }),
      ...(init.signal === undefined ? {} : { signal: init.signal }),
    });
    const shown = new Headers();
    for (const [name, value] of Object.entries(headers)) {
      // The body is decoded already.
      if (value === undefined || name === 'content-encoding' || name === 'content-length') continue;
      for (const one of typeof value === 'string' ? [value] : value) shown.append(name, one);
    }
    return new Response(status === 204 || status === 304 ? null : new Uint8Array(answer), { status, headers: shown });
  };

  async onModuleDestroy(): Promise<void> {
    await this.#http?.close();
  }
}

function bodyOf(body: unknown): string | Uint8Array {
  if (typeof body === 'string' || body instanceof Uint8Array) return body;
  if (body instanceof URLSearchParams) return body.toString();
  throw new TypeError('This kind of body is not sent to providers');
}
