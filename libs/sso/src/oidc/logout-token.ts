import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

const maxLength = 16_384;
const maxKeys = 100;
/** How far clocks may differ. */
const toleranceSeconds = 120;
/** Older tokens are refused, also where they do not say when they expire. */
const oldestSeconds = 3_600;
const logoutEvent = 'http://schemas.openid.net/event/backchannel-logout';

/** A token that asks for a logout, its signature not checked yet. */
export interface ParsedToken {
  readonly header: JsonObject;
  readonly claims: JsonObject;
  readonly signed: string;
  readonly signature: Buffer;
}

/** What a checked token asks for. */
export interface LogoutRequest {
  readonly sessionId: string | undefined;
  readonly subject: string | undefined;
  /** Of the token. */
  readonly id: string;
}

/** @returns `undefined` for what is no token */
export function parseToken(token: string): ParsedToken | undefined {
  const parts = token.length > maxLength ? [] : token.split('.');
  const [header, claims] = parts.slice(0, 2).map((part) => {
    try {
      const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
      return isJsonObject(value) ? value : undefined;
    } catch {
      return undefined;
    }
  });
  if (parts.length !== 3 || !header || !claims) return undefined;
  return { header, claims, signed: `${parts[0]}.${parts[1]}`, signature: Buffer.from(parts[2]!, 'base64url') };
}

/**
 * What a token asks for, if it is from the issuer, for this client, and one of its kind.
 * @param keys the provider's key set
 * @returns the request, or what is wrong
 * @see OpenID Connect Back-Channel Logout 1.0, section 2.6
 */
export function checkLogoutToken(
  token: ParsedToken,
  keys: unknown,
  expected: {
    readonly issuer: string;
    readonly clientId: string;
    readonly algorithms: readonly string[];
    readonly nowMs: number;
  },
): LogoutRequest | string {
  const { header, claims } = token;
  const { iss, aud, iat, exp, events, nonce, sid, sub, jti } = claims;
  const nowSeconds = expected.nowMs / 1000;
  if (typeof header['alg'] !== 'string' || !expected.algorithms.includes(header['alg'])) return 'wrong algorithm';
  if (header['crit'] !== undefined) return 'unknown critical header';
  if (!signatureHolds(token, header['alg'], keys)) return 'wrong signature';
  if (iss !== expected.issuer) return 'wrong issuer';
  if (!(Array.isArray(aud) ? aud : [aud]).includes(expected.clientId)) return 'wrong audience';
  if (typeof iat !== 'number' || iat > nowSeconds + toleranceSeconds) return 'not issued yet';
  if (iat < nowSeconds - oldestSeconds) return 'too old';
  if (exp !== undefined && !(typeof exp === 'number' && exp > nowSeconds - toleranceSeconds)) return 'expired';
  if (!isJsonObject(events) || !isJsonObject(events[logoutEvent])) return 'not a logout token';
  if (nonce !== undefined) return 'an ID token is no logout token';
  const known = (value: unknown): string | undefined =>
    typeof value === 'string' && value !== '' && value.length <= 255 ? value : undefined;
  if (known(sid) === undefined && known(sub) === undefined) return 'nobody to log out';
  const id = known(jti);
  if (id === undefined) return 'no id';
  return { sessionId: known(sid), subject: known(sub), id };
}

const digests: Readonly<Record<string, string>> = { '256': 'sha256', '384': 'sha384', '512': 'sha512' };
const keyTypes: Readonly<Record<string, string>> = { RS: 'RSA', PS: 'RSA', ES: 'EC', Ed: 'OKP' };

/** Only public keys are looked at: a secret of ours must not become a key of theirs. */
function signatureHolds({ header, signed, signature }: ParsedToken, algorithm: string, keys: unknown): boolean {
  const type = keyTypes[algorithm.slice(0, 2)];
  const list = isJsonObject(keys) && Array.isArray(keys['keys']) ? keys['keys'].slice(0, maxKeys) : [];
  const { kid } = header;
  return list.some((key: unknown) => {
    if (!isJsonObject(key) || key['kty'] !== type || (key['use'] ?? 'sig') !== 'sig') return false;
    if (kid !== undefined && key['kid'] !== undefined && key['kid'] !== kid) return false;
    if (key['alg'] !== undefined && key['alg'] !== algorithm) return false;
    try {
      return verifies(algorithm, Buffer.from(signed), createPublicKey({ key, format: 'jwk' }), signature);
    } catch {
      return false;
    }
  });
}

function verifies(algorithm: string, data: Buffer, key: KeyObject, signature: Buffer): boolean {
  if (algorithm === 'EdDSA' || algorithm === 'Ed25519') return verify(null, data, key, signature);
  const digest = digests[algorithm.slice(2)];
  if (digest === undefined) return false;
  if (algorithm.startsWith('ES')) return verify(digest, data, { key, dsaEncoding: 'ieee-p1363' }, signature);
  // RSA_PKCS1_PSS_PADDING with a salt as long as the digest.
  if (algorithm.startsWith('PS')) return verify(digest, data, { key, padding: 6, saltLength: -1 }, signature);
  return verify(digest, data, key, signature);
}
