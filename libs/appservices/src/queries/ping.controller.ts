import { Controller, Param, Post } from '@nestjs/common';
import { Access, client, type Infer, json, JsonBody, OutboundError, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import { AppserviceClient } from './appservice-client.js';

const timeoutMs = 30_000;
const longestShownBody = 5_000;
const pingSchema = json.object({
  transaction_id: json.optional(
    'Handed on to the application service with the ping.',
    json.string({ maxLength: 1000 }),
  ),
});

/** An application service asks whether it can be reached. */
@Controller()
export class PingController {
  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly outgoing: AppserviceClient,
    private readonly clock: Clock,
  ) {}

  /**
   * POST /_matrix/client/v1/appservice/{appserviceId}/ping
   * @spec client-server-api#post_matrixclientv1appserviceappserviceidping
   */
  @Post([
    ...client(['v1'], '/appservice/:appserviceId/ping'),
    ...client(['unstable'], '/fi.mau.msc2659/appservice/:appserviceId/ping'),
  ])
  @Access({ auth: 'required' })
  async ping(
    @Who() requester: Requester,
    @Param('appserviceId') appserviceId: string,
    @JsonBody(pingSchema) { transaction_id: transactionId }: Infer<typeof pingSchema>,
  ): Promise<object> {
    const service = this.registry.byId(appserviceId);
    if (!service || requester.appserviceId !== appserviceId)
      throw MatrixError.forbidden("This is not the application service's own token");
    if (service.fields.url === undefined) throw MatrixError.urlNotSet();
    const body = JSON.stringify(transactionId === undefined ? {} : { transaction_id: transactionId });
    const startedMs = this.clock.monotonicMs();
    const { status, text } = await this.outgoing
      .send(service, { method: 'POST', path: '/v1/ping', legacyPath: undefined, body, timeoutMs })
      .catch((error: unknown) => {
        throw unreached(error);
      });
    if (status < 200 || status > 299) {
      const extra = { status, body: text.slice(0, longestShownBody) };
      throw MatrixError.badStatus(`The application service answered with status ${status}`, extra);
    }
    this.registry.reached(appserviceId);
    return { duration_ms: Math.round(this.clock.monotonicMs() - startedMs) };
  }
}

function unreached(error: unknown): unknown {
  if (!(error instanceof OutboundError)) return error;
  return error.reason === 'timeout' ? MatrixError.connectionTimeout() : MatrixError.connectionFailed(error.message);
}
