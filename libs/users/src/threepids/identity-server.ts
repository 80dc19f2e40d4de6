import { Injectable } from '@nestjs/common';
import { canonicalJson, SigningKey } from '@rookery/events';
import { authorizationHeader } from '@rookery/federation-client';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { errorOfOther, isJsonObject, isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { canonicalAddress } from './addresses.js';

const timeoutMs = 20_000;
const maxAnswerBytes = 65_536;

interface Answer {
  readonly status: number;
  /** Absent where the answer is not a JSON object. */
  readonly body: JsonObject | undefined;
}

/** Talks to identity servers that users choose. The outbound client keeps it away from the operator's own network. */
@Injectable()
export class IdentityServer {
  constructor(
    private readonly http: OutboundHttp,
    private readonly config: Config,
    private readonly key: SigningKey,
    private readonly logger: Logger,
  ) {}

  /**
   * Publishes a user's address at an identity server, with the user's own token there.
   * @returns the address in canonical form
   * @spec identity-service-api#post_matrixidentityv23pidbind
   * @throws MatrixError 400 `M_INVALID_PARAM`; 502; what the identity server refuses with
   */
  async bind(
    idServer: string,
    idAccessToken: string,
    sid: string,
    clientSecret: string,
    userId: string,
  ): Promise<{ medium: string; address: string }> {
    checkServer(idServer);
    if (!/^[\x21-\x7e]{1,2048}$/.test(idAccessToken))
      throw MatrixError.invalidParam("'id_access_token' is not a token");
    const claim = { sid, client_secret: clientSecret, mxid: userId };
    const { status, body } = await this.#post(idServer, 'bind', claim, () => `Bearer ${idAccessToken}`);
    if (status !== 200) throw refusal(status, body) ?? unreachable();
    const { medium, address, mxid } = body ?? {};
    if (typeof medium !== 'string' || typeof address !== 'string' || mxid !== userId) throw garbled();
    try {
      return { medium, address: canonicalAddress(medium, address) };
    } catch (error) {
      if (MatrixError.is(error)) throw garbled();
      throw error;
    }
  }

  /**
   * Has an identity server forget a user's address. The request is signed by this server: the user's token there is not
   * needed.
   * @returns whether it did; `false` where it does not let servers do that
   * @spec identity-service-api#post_matrixidentityv23pidunbind
   * @throws MatrixError 400 `M_INVALID_PARAM`; 502; what the identity server refuses with
   */
  async unbind(idServer: string, userId: string, medium: string, address: string): Promise<boolean> {
    checkServer(idServer);
    const claim = { mxid: userId, threepid: { medium, address } };
    const { status, body } = await this.#post(idServer, 'unbind', claim, (uri) => this.#signed(idServer, uri, claim));
    if (status === 200) return true;
    const refused = refusal(status, body);
    if (refused) throw refused;
    if (status === 400 || status === 403 || status === 404 || status === 501) return false;
    throw unreachable();
  }

  /** @spec server-server-api#request-authentication */
  #signed(destination: string, uri: string, content: JsonObject): string {
    const parts = { method: 'POST', uri, origin: this.config.serverName, destination };
    return authorizationHeader({ ...parts, canonicalContent: canonicalJson(content) }, this.key);
  }

  async #post(
    idServer: string,
    action: 'bind' | 'unbind',
    json: JsonObject,
    authorization: (uri: string) => string,
  ): Promise<Answer> {
    const uri = `/_matrix/identity/v2/3pid/${action}`;
    try {
      const { status, body } = await this.http.toIdentityServers.request({
        method: 'POST',
        url: `https://${idServer}${uri}`,
        headers: {
          'content-type': 'application/json',
          accept: 'application/json',
          authorization: authorization(uri),
        },
        body: JSON.stringify(json),
        timeoutMs,
        maxBytes: maxAnswerBytes,
        maxRedirects: 0,
      });
      return { status, body: parsed(body) };
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      this.logger.warn('An identity server cannot be used', { err: error });
      throw unreachable();
    }
  }
}

const unreachable = (): MatrixError => MatrixError.identityServerSilent();
const garbled = (): MatrixError => MatrixError.identityServerGarbled();

function checkServer(idServer: string): void {
  if (!isValidServerName(idServer)) throw MatrixError.invalidParam("'id_server' is not a server name");
}

function parsed(body: Buffer): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * An error of the identity server's as the client sees it; `undefined` where the answer is none, or says that there is no such thing
 * as an identity server. What the client would take for the end of its own session is a refusal.
 */
function refusal(status: number, body: JsonObject | undefined): MatrixError | undefined {
  const message = 'The identity server refused';
  if (status === 401) return MatrixError.forbidden(message);
  const errcode = body?.['errcode'];
  if (status < 400 || status > 599 || typeof errcode !== 'string' || !/^[A-Z0-9_.]{1,100}$/.test(errcode))
    return undefined;
  if (errcode === 'M_UNRECOGNIZED') return undefined;
  if (status < 500) return errorOfOther(status, errcode, message) ?? MatrixError.forbidden(message);
  const code = errorOfOther(400, errcode, message)?.errcode ?? 'M_UNKNOWN';
  return MatrixError.passedOn(status === 501 ? 501 : 502, code, message);
}
