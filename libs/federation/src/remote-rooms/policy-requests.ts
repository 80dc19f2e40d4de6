import { Injectable } from '@nestjs/common';
import { canonicalJson, type RoomEvent } from '@rookery/events';
import { FederationClient, FederationRequestError } from '@rookery/federation-client';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';

const maxBytes = 65_536;

/** Asks policy servers for their signatures. */
@Injectable()
export class PolicyRequests {
  constructor(private readonly client: FederationClient) {}

  /**
   * @param event signed by its own server
   * @returns base64, not verified
   * @throws MatrixError 403 `M_FORBIDDEN` when the server refuses, 429 `M_LIMIT_EXCEEDED`, 502 or 504 when it does not answer
   *   as it must
   * @spec server-server-api#post_matrixpolicyv1sign
   */
  async sign(server: string, event: RoomEvent, keyId: string, timeoutMs: number): Promise<string> {
    const { unsigned: _, ...pdu } = event.pdu;
    try {
      const answer = await this.client.requestJson({
        ...{ destination: server, method: 'POST', path: '/_matrix/policy/v1/sign', timeoutMs, maxBytes },
        canonicalContent: canonicalJson(pdu),
        ...{ retries: 'none', awaited: true },
      });
      const ofServer = Object.hasOwn(answer, server) ? answer[server] : undefined;
      const signature = isJsonObject(ofServer) && Object.hasOwn(ofServer, keyId) ? ofServer[keyId] : undefined;
      if (typeof signature === 'string') return signature;
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      throw refusalOf(error);
    }
    throw MatrixError.badGateway('The policy server of this room gave no signature');
  }
}

function refusalOf(error: FederationRequestError): MatrixError {
  if (error.errcode === 'M_FORBIDDEN') return MatrixError.forbidden('The policy server of this room refuses the event');
  if (error.status === 429) return MatrixError.limitExceeded(Math.min(error.retryAfterMs ?? 5_000, 60_000));
  const message = 'The policy server of this room does not answer as it must';
  return error.reason === 'timeout' ? MatrixError.gatewayTimeout(message) : MatrixError.badGateway(message);
}
