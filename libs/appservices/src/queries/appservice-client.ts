import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { IpGuard, OutboundHttp } from '@rookery/http';
import { isJsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import type { Registration } from '../registration/registration.js';

/** One request to an application service. */
export interface AppserviceRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  /** Behind `/_matrix/app`, percent-encoded: `/v1/transactions/7`. */
  readonly path: string;
  /** Where services of the past have it, when that is elsewhere: the whole path; `undefined` where there is none. */
  readonly legacyPath: string | undefined;
  readonly query?: Readonly<Record<string, string | readonly string[]>>;
  /** JSON text. */
  readonly body?: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** What an application service answered, whatever its status. */
export interface AppserviceAnswer {
  readonly status: number;
  readonly text: string;
  /** The body, where it is JSON. */
  readonly json: unknown;
}

const maxAnswerBytes = 1024 * 1024;

/**
 * Requests to application services. They are named by the operator, so that no address is refused; proxies are not used.
 * The versioned path is tried first, that of the past where the service does not know it.
 * @spec application-service-api#legacy-routes
 */
@Injectable()
export class AppserviceClient implements OnModuleDestroy {
  readonly #http = new OutboundHttp({ guard: new IpGuard([]), userAgent: 'Rookery' });

  constructor(private readonly config: Config) {}

  onModuleDestroy(): Promise<void> {
    return this.#http.close();
  }

  /**
   * @throws OutboundError when there is no answer
   * @throws Error when the service has no address
   */
  async send(service: Registration, request: AppserviceRequest): Promise<AppserviceAnswer> {
    const answer = await this.#send(service, request, `/_matrix/app${request.path}`);
    if (request.legacyPath === undefined || !isUnknownEndpoint(answer)) return answer;
    return this.#send(service, request, request.legacyPath);
  }

  async #send(service: Registration, request: AppserviceRequest, path: string): Promise<AppserviceAnswer> {
    const { url: base, hsToken } = service.fields;
    if (base === undefined) throw new Error(`The application service ${service.id} has no address`);
    const url = new URL(`${base}${path}`);
    for (const [name, value] of Object.entries(request.query ?? {}))
      for (const one of typeof value === 'string' ? [value] : value) url.searchParams.append(name, one);
    if (this.config.get('use_appservice_legacy_authorization')) url.searchParams.set('access_token', hsToken);
    const { status, body } = await this.#http.request({
      method: request.method,
      url,
      headers: {
        authorization: `Bearer ${hsToken}`,
        accept: 'application/json',
        ...(request.body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(request.body === undefined ? {} : { body: request.body }),
      timeoutMs: request.timeoutMs,
      maxBytes: maxAnswerBytes,
      maxRedirects: 0,
      ...(request.signal ? { signal: request.signal } : {}),
    });
    const text = body.toString('utf8');
    return { status, text, json: parsed(text) };
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a service does not know a path, rather than what was asked for there. */
function isUnknownEndpoint({ status, json }: AppserviceAnswer): boolean {
  if (status !== 404 && status !== 405) return false;
  const errcode = isJsonObject(json) ? json['errcode'] : undefined;
  return typeof errcode !== 'string' || errcode === 'M_UNRECOGNIZED';
}
