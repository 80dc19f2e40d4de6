import { createHmac, createPublicKey, type KeyObject, timingSafeEqual, verify } from 'node:crypto';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type SettingsError, settingError, type SettingName } from '@rookery/platform';

/** Largest token, characters. */
const longestToken = 16_384;
/** How far clocks may differ. */
const leewayMs = 0;

const digests: Readonly<Record<string, string>> = { '256': 'sha256', '384': 'sha384', '512': 'sha512' };

/** What a token says about its bearer. */
export interface JwtClaims {
  readonly localpart: string;
  readonly displayName?: string | undefined;
}

/** Logins by JSON web tokens that somebody else signed. */
@Injectable()
export class JwtLogin implements OnModuleInit {
  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /** @throws SettingsError when no token could ever be checked */
  onModuleInit(): void {
    if (this.isEnabled) checkKey(this.config);
  }

  get isEnabled(): boolean {
    return this.config.get('jwt_config.enabled');
  }

  /** Who a token says that its bearer is. @throws MatrixError 403 `M_FORBIDDEN` */
  check(token: string): JwtClaims {
    return checkJwt(token, this.config, this.clock.nowMs());
  }
}

/** Types of keys, by the first letters of an algorithm; `undefined` for a secret. */
const keyTypes: Readonly<Record<string, readonly string[] | undefined>> = {
  HS: undefined,
  RS: ['rsa'],
  ES: ['ec'],
  Ed: ['ed25519', 'ed448'],
};

/** @throws SettingsError when the algorithm is none that is known, or the key none for it */
function checkKey(config: Config): void {
  const wrong = (setting: SettingName, message: string): SettingsError => settingError(config, setting, [], message);
  const algorithm = config.get('jwt_config.algorithm') ?? '';
  if (algorithm !== 'EdDSA' && !/^(?:HS|RS|ES)(?:256|384|512)$/.test(algorithm))
    throw wrong(
      'jwt_config.algorithm',
      `${algorithm} is not known: take HS, RS or ES with 256, 384 or 512, as in HS256, or EdDSA`,
    );
  const types = keyTypes[algorithm.slice(0, 2)];
  if (types === undefined) return;
  let key: KeyObject;
  try {
    key = createPublicKey(config.get('jwt_config.secret') ?? '');
  } catch {
    throw wrong('jwt_config.secret', `is no public key in PEM form, which ${algorithm} needs`);
  }
  if (!types.includes(key.asymmetricKeyType ?? ''))
    throw wrong('jwt_config.secret', `is a key for ${key.asymmetricKeyType}, which ${algorithm} cannot use`);
}

/**
 * Checks a JSON web token by the settings `jwt_config`. The algorithm is the setting's: what the token's head says about it
 * must agree and decides nothing.
 * @throws MatrixError 403 `M_FORBIDDEN`
 */
function checkJwt(token: string, config: Config, nowMs: number): JwtClaims {
  const parts = token.length > longestToken ? [] : token.split('.');
  if (parts.length !== 3) throw invalid('not a token');
  const [head, payload, signature] = parts as [string, string, string];
  const algorithm = config.get('jwt_config.algorithm') ?? '';
  if (parse(head)['alg'] !== algorithm) throw invalid('signed with another algorithm');
  if (
    !signatureHolds(
      algorithm,
      `${head}.${payload}`,
      Buffer.from(signature, 'base64url'),
      config.get('jwt_config.secret') ?? '',
    )
  )
    throw invalid('wrong signature');
  const claims = parse(payload);
  checkTimes(claims, nowMs);
  const issuer = config.get('jwt_config.issuer');
  if (issuer !== undefined && claims['iss'] !== issuer) throw invalid('wrong issuer');
  checkAudience(claims['aud'], config.get('jwt_config.audiences'));
  const localpart = claims[config.get('jwt_config.subject_claim')];
  if (typeof localpart !== 'string' || localpart === '') throw invalid('no subject');
  const nameClaim = config.get('jwt_config.display_name_claim');
  const displayName = nameClaim === undefined ? undefined : claims[nameClaim];
  return { localpart, displayName: typeof displayName === 'string' ? displayName.slice(0, 256) : undefined };
}

function signatureHolds(algorithm: string, text: string, signature: Buffer, key: string): boolean {
  const digest = digests[algorithm.slice(2)];
  try {
    if (algorithm === 'EdDSA') return verify(null, Buffer.from(text), createPublicKey(key), signature);
    if (!digest) return false;
    if (algorithm.startsWith('HS')) {
      const expected = createHmac(digest, key).update(text).digest();
      return expected.length === signature.length && timingSafeEqual(expected, signature);
    }
    if (algorithm.startsWith('RS')) return verify(digest, Buffer.from(text), createPublicKey(key), signature);
    if (algorithm.startsWith('ES'))
      return verify(digest, Buffer.from(text), { key: createPublicKey(key), dsaEncoding: 'ieee-p1363' }, signature);
    return false;
  } catch {
    return false;
  }
}

function checkTimes(claims: JsonObject, nowMs: number): void {
  for (const name of ['exp', 'nbf', 'iat']) {
    const value = claims[name];
    if (value === undefined) continue;
    if (typeof value !== 'number') throw invalid(`'${name}' is not a number`);
    const atMs = value * 1000;
    if (name === 'exp' ? atMs + leewayMs <= nowMs : atMs - leewayMs > nowMs)
      throw invalid(name === 'exp' ? 'expired' : 'not valid yet');
  }
}

/** A token for somebody in particular must not be taken by somebody who has no name. */
function checkAudience(given: unknown, expected: readonly string[] | undefined): void {
  const audiences = given === undefined ? [] : Array.isArray(given) ? given : [given];
  if (expected === undefined ? audiences.length > 0 : !expected.some((one) => audiences.includes(one)))
    throw invalid('wrong audience');
}

function parse(part: string): JsonObject {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    if (isJsonObject(value)) return value;
  } catch {
    // Falls through: whatever it is, it is no token.
  }
  throw invalid('not a token');
}

const invalid = (reason: string): MatrixError => MatrixError.forbidden(`The token is not valid: ${reason}`);
