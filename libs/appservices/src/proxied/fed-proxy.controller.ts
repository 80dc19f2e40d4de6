import { type CanActivate, Controller, type ExecutionContext, Injectable, Post, UseGuards } from '@nestjs/common';
import { FederationClient, FederationRequestError } from '@rookery/federation-client';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type Infer,
  json,
  JsonBody,
  leadsElsewhere,
  parseJsonInSlices,
  Who,
} from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { AppserviceRegistry } from '../registration/appservice-registry.js';

/** Largest answer of another server, bytes: it goes on as a part of a larger one. */
const maxBytes = 10_485_760;
const longest = 2_048;

const requestBody = json.object({
  destination: json.required('The server that is asked.', json.string()),
  method: json.required(
    'How it is asked; `body` goes with `POST` and `PUT` alone.',
    json.enum('GET', 'POST', 'PUT', 'DELETE'),
  ),
  path: json.required(
    'Percent-encoded, below `proxy_prefix` of the service: `/_matrix/federation/v1/{proxy_prefix}/…`.',
    json.string({ maxLength: longest }),
  ),
  query: json.optional(
    'What stands in the query.',
    json.record(json.string({ maxLength: longest }), { maxProperties: 100 }),
  ),
  body: json.optional('What is sent.', json.anyObject()),
});

/** What another server answered a service. */
interface RelayedAnswer {
  readonly status: number;
  /** Absent where the answer is no JSON object. */
  readonly content?: unknown;
}

/** Lets application services pass, before anything is said about what they send. */
@Injectable()
class ServicesOnly implements CanActivate {
  canActivate(context: ExecutionContext): true {
    const { requester } = context.switchToHttp().getRequest<{ requester: Requester | undefined }>();
    if (requester?.appserviceId === undefined) throw MatrixError.forbidden('This is for application services alone');
    return true;
  }
}

/** Application services ask other servers, under their own paths and as this server (MSC4512). */
@Controller()
export class FedProxyController {
  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly federation: FederationClient,
    private readonly config: Config,
  ) {}

  /** POST /_matrix/client/unstable/io.element.msc4512/appservice/fed_proxy */
  @Post(client(['unstable'], '/io.element.msc4512/appservice/fed_proxy'))
  @Access({ auth: 'required' })
  @UseGuards(ServicesOnly)
  ask(
    @Who() { appserviceId = '' }: Requester,
    @JsonBody(requestBody, { wrongType: 'M_INVALID_PARAM' }) asked: Infer<typeof requestBody>,
    @Inbound() { signal }: InboundRequest,
  ): Promise<RelayedAnswer> {
    const { destination, method, path, query, body } = asked;
    if (!isValidServerName(destination)) throw MatrixError.invalidParam("'destination' is not the name of a server");
    if (!/^\/(?:[\w.~!$&'()*+,;=:@/-]|%[\da-f]{2})*$/i.test(path))
      throw MatrixError.invalidParam("'path' is not the path of a URL");
    if (body !== undefined && (method === 'GET' || method === 'DELETE'))
      throw MatrixError.invalidParam(`'body' does not go with ${method}`);
    if (destination === this.config.serverName || !this.federation.allows(destination))
      throw MatrixError.fedProxyDestinationDenied();
    const prefix = this.registry.byId(appserviceId)?.fields.proxied?.prefix;
    if (prefix === undefined || !liesBelow(path, prefix)) throw MatrixError.fedProxyPathNotAllowed();
    return this.#relay({
      ...{ destination, method, path, query, signal, maxBytes },
      content: body as JsonObject | undefined,
      // The answer is the service's to judge: one that is no good says nothing of the server behind it.
      ...{ retries: 'none', ignoreBackoff: true },
    });
  }

  async #relay(request: Parameters<FederationClient['request']>[0]): Promise<RelayedAnswer> {
    try {
      const { status, body } = await this.federation.request(request);
      const content = await parseJsonInSlices(body, { anyNumber: true }).catch(() => undefined);
      return isJsonObject(content) ? { status, content } : { status };
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      const { status, body: content, message } = error;
      if (status === undefined) throw MatrixError.fedProxyConnectionFailed(message);
      return content === undefined ? { status } : { status, content };
    }
  }
}

/** Whether a path is one of a service's own, however it is read. */
function liesBelow(path: string, prefix: string): boolean {
  const version = /^\/_matrix\/federation\/(?:unstable\/[^/%]+|v[^/%]+)\//.exec(path)?.[0];
  return version !== undefined && path.startsWith(`${version}${prefix}/`) && !leadsElsewhere(path);
}
