import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { isJsonObject, isValidServerName, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';

/** An address that is to be invited through an identity server. */
export interface ThreepidInvite {
  readonly medium: string;
  readonly address: string;
  readonly idServer: string;
  readonly idAccessToken: string | undefined;
}

/** A key by which an identity server will vouch for whoever claims an invite. */
export interface InviteKey {
  readonly public_key: string;
  readonly key_validity_url: string;
}

/** An invite that an identity server keeps. */
export interface KeptInvite {
  readonly token: string;
  /** The address, made unrecognizable. */
  readonly displayName: string;
  /** Never empty. */
  readonly publicKeys: readonly InviteKey[];
}

const timeoutMs = 20_000;
const maxAnswerBytes = 65_536;
const maxAddressLength = 512;
const maxDisplayNameLength = 500;
const maxKeys = 10;
const maxUrlLength = 2048;

/**
 * Asks identity servers, which users name freely: the outbound client keeps it away from the operator's own network, and
 * every answer is bounded and checked.
 */
@Injectable()
export class IdentityServers {
  constructor(
    private readonly http: OutboundHttp,
    private readonly logger: Logger,
  ) {}

  /** @throws MatrixError 400 `M_MISSING_PARAM` or `M_INVALID_PARAM` for an invite that no identity server can be asked about */
  check({ medium, address, idServer, idAccessToken }: ThreepidInvite): void {
    if (!isValidServerName(idServer)) throw MatrixError.invalidParam("'id_server' is not a server name");
    if (idAccessToken === undefined) throw MatrixError.missingParam("Missing parameter 'id_access_token'");
    if (!/^[\x21-\x7e]{1,2048}$/.test(idAccessToken)) {
      throw MatrixError.invalidParam("'id_access_token' is not a token");
    }
    if (medium !== 'email' && medium !== 'msisdn') throw MatrixError.invalidParam("'medium' is not known");
    if (address === '' || address.length > maxAddressLength) throw MatrixError.invalidParam("'address' is not valid");
  }

  /**
   * The user bound to an address; `undefined` when there is none. The address leaves this server hashed, if the identity
   * server can do with that.
   * @spec identity-service-api#post_matrixidentityv2lookup
   * @throws MatrixError 400, 502
   */
  async lookUp(invite: ThreepidInvite): Promise<string | undefined> {
    this.check(invite);
    let answer = await this.#tryLookUp(invite);
    // The pepper may have changed in between: once more, and no more.
    if (answer.errcode === 'M_INVALID_PEPPER') answer = await this.#tryLookUp(invite);
    if (answer.status !== 200) throw refused(answer);
    const mappings = answer.body['mappings'];
    const found = isJsonObject(mappings) ? mappings[answer.asked] : undefined;
    // Identity servers in use say so, too.
    if (found === undefined || found === null) return undefined;
    if (typeof found !== 'string' || !isValidUserId(found)) throw garbled();
    return found;
  }

  /**
   * Leaves an invite to be claimed by whoever proves to own the address.
   * @param facts what the identity server may tell in its mail
   * @spec identity-service-api#post_matrixidentityv2store-invite
   * @throws MatrixError 400, 502
   */
  async store(invite: ThreepidInvite, facts: Readonly<JsonObject>): Promise<KeptInvite> {
    this.check(invite);
    const { medium, address } = invite;
    const answer = await this.#ask(invite, 'POST', 'store-invite', { ...facts, medium, address });
    if (answer.status !== 200) throw refused(answer);
    const { token, display_name: displayName, public_keys: keys } = answer.body;
    if (typeof token !== 'string' || !/^[0-9a-zA-Z.=_-]{1,255}$/.test(token)) throw garbled();
    if (typeof displayName !== 'string' || displayName.length > maxDisplayNameLength) throw garbled();
    if (!Array.isArray(keys) || keys.length === 0 || keys.length > maxKeys) throw garbled();
    return { token, displayName, publicKeys: keys.map(checkedKey) };
  }

  /**
   * Whether an identity server still stands by a key; what cannot be asked is not valid.
   * @param url `key_validity_url` of an `m.room.third_party_invite` event
   * @spec identity-service-api#get_matrixidentityv2pubkeyephemeralisvalid
   */
  async isKeyValid(url: string, publicKey: string): Promise<boolean> {
    if (url.length > maxUrlLength || !URL.canParse(url)) return false;
    const address = new URL(url);
    if (address.protocol !== 'https:') return false;
    address.searchParams.set('public_key', publicKey);
    try {
      const answer = await this.http.toIdentityServers.json({
        url: address,
        timeoutMs,
        maxBytes: maxAnswerBytes,
        maxRedirects: 0,
      });
      return isJsonObject(answer) && answer['valid'] === true;
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      this.logger.warn('A key of a third-party invite could not be checked', { err: error });
      return false;
    }
  }

  async #tryLookUp(invite: ThreepidInvite): Promise<Answer & { asked: string }> {
    const details = await this.#ask(invite, 'GET', 'hash_details');
    if (details.status !== 200) throw refused(details);
    const { lookup_pepper: pepper, algorithms } = details.body;
    if (typeof pepper !== 'string' || pepper.length > 1000 || !Array.isArray(algorithms)) throw garbled();
    const algorithm = ['sha256', 'none'].find((name) => algorithms.includes(name));
    if (algorithm === undefined) {
      throw MatrixError.badRequest('The identity server hashes addresses in an unknown way');
    }
    const plain = `${invite.address} ${invite.medium}`;
    const asked = algorithm === 'none' ? plain : hash(`${plain} ${pepper}`);
    const answer = await this.#ask(invite, 'POST', 'lookup', { addresses: [asked], algorithm, pepper });
    return { ...answer, asked };
  }

  async #ask(invite: ThreepidInvite, method: 'GET' | 'POST', path: string, json?: JsonObject): Promise<Answer> {
    try {
      const { status, body } = await this.http.toIdentityServers.request({
        method,
        url: `https://${invite.idServer}/_matrix/identity/v2/${path}`,
        headers: {
          accept: 'application/json',
          authorization: `Bearer ${invite.idAccessToken}`,
          ...(json && { 'content-type': 'application/json' }),
        },
        ...(json && { body: JSON.stringify(json) }),
        timeoutMs,
        maxBytes: maxAnswerBytes,
        maxRedirects: 0,
      });
      const answer: unknown = JSON.parse(body.toString('utf8'));
      if (isJsonObject(answer) && (status === 200 || (status >= 400 && status < 500))) {
        return { status, body: answer, errcode: answer['errcode'] };
      }
    } catch (error) {
      if (!(error instanceof OutboundError) && !(error instanceof SyntaxError)) throw error;
      this.logger.warn('An identity server cannot be used', { err: error });
    }
    throw MatrixError.identityServerSilent();
  }
}

interface Answer {
  readonly status: number;
  readonly body: JsonObject;
  readonly errcode: unknown;
}

/** Error codes that tell a client something it can act upon. */
const passedOn: readonly unknown[] = [
  'M_TERMS_NOT_SIGNED',
  'M_THREEPID_IN_USE',
  'M_INVALID_EMAIL',
  'M_INVALID_ADDRESS',
];

/** A refusal as the user's client sees it. It is never 401: the client would take its own session for ended. */
function refused({ status, errcode }: Answer): MatrixError {
  if (status === 401 || errcode === 'M_UNAUTHORIZED') {
    return MatrixError.forbidden('The identity server does not take the access token');
  }
  const code = passedOn.includes(errcode) ? (errcode as string) : 'M_UNKNOWN';
  return MatrixError.passedOn(400, code, 'The identity server refused');
}

const garbled = (): MatrixError => MatrixError.identityServerGarbled();

const hash = (text: string): string => createHash('sha256').update(text).digest('base64url');

function checkedKey(value: unknown): InviteKey {
  if (!isJsonObject(value)) throw garbled();
  const { public_key: key, key_validity_url: url } = value;
  if (typeof key !== 'string' || !/^[A-Za-z0-9+/_-]{43}=?$/.test(key)) throw garbled();
  if (typeof url !== 'string' || url.length > maxUrlLength || !/^https?:\/\//.test(url)) throw garbled();
  return { public_key: key, key_validity_url: url };
}
