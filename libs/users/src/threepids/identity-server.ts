import { Injectable } from '@nestjs/common';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';

/** Talks to identity servers that users choose. The outbound client keeps it away from the operator's own network. */
@Injectable()
export class IdentityServer {
  constructor(
    private readonly http: OutboundHttp,
    private readonly logger: Logger,
  ) {}

  /**
   * Publishes a user's address at an identity server, with the user's own token there.
   * @spec identity-service-api#post_matrixidentityv23pidbind
   * @throws MatrixError 400 `M_INVALID_PARAM`; 502; what the identity server refuses with, as 400
   */
  async bind(
    idServer: string,
    idAccessToken: string,
    sid: string,
    clientSecret: string,
    userId: string,
  ): Promise<{ medium: string; address: string }> {
    if (!isValidServerName(idServer)) throw MatrixError.invalidParam("'id_server' is not a server name");
    if (!/^[\x21-\x7e]{1,2048}$/.test(idAccessToken))
      throw MatrixError.invalidParam("'id_access_token' is not a token");
    const answer = await this.#post(
      `https://${idServer}/_matrix/identity/v2/3pid/bind`,
      { sid, client_secret: clientSecret, mxid: userId },
      idAccessToken,
    );
    const { medium, address } = answer;
    if (typeof medium !== 'string' || typeof address !== 'string')
      throw new MatrixError(502, 'M_UNKNOWN', 'The identity server did not answer as it should');
    return { medium, address };
  }

  async #post(url: string, json: object, token: string): Promise<JsonObject> {
    try {
      const { status, body } = await this.http.request({
        method: 'POST',
        url,
        headers: { 'content-type': 'application/json', accept: 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify(json),
        timeoutMs: 20_000,
        maxBytes: 65_536,
        maxRedirects: 0,
      });
      const answer: unknown = JSON.parse(body.toString('utf8'));
      if (status === 200 && isJsonObject(answer)) return answer;
      if (status >= 400 && status < 500) throw new MatrixError(400, 'M_UNKNOWN', 'The identity server refused');
    } catch (error) {
      if (MatrixError.is(error)) throw error;
      if (!(error instanceof OutboundError) && !(error instanceof SyntaxError)) throw error;
      this.logger.warn('An identity server cannot be used', { err: error });
    }
    throw new MatrixError(502, 'M_UNKNOWN', 'The identity server did not answer');
  }
}
