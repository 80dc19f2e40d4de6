import { createPrivateKey, createSecretKey, createHmac, type KeyObject, sign } from 'node:crypto';
import type { Clock, OidcProviderSetting } from '@rookery/platform';

type KeySetting = NonNullable<OidcProviderSetting['client_secret_jwt_key']>;

const lifetimeSeconds = 300;
/** A secret that is about to expire is not handed out. */
const marginSeconds = 60;

const digests: Readonly<Record<string, string>> = { '256': 'sha256', '384': 'sha384', '512': 'sha512' };

/** A client secret that is a signed token, made anew every few minutes, as some providers ask for. */
export class SignedClientSecret {
  readonly #key: KeyObject;
  readonly #algorithm: string;
  #current: { readonly secret: string; readonly expirySeconds: number } | undefined;

  /** @throws Error when the key does not fit the algorithm */
  constructor(
    private readonly setting: KeySetting,
    private readonly clock: Clock,
  ) {
    this.#algorithm = String(setting.jwt_header['alg']);
    const text = setting.key ?? '';
    this.#key = this.#algorithm.startsWith('HS') ? createSecretKey(Buffer.from(text)) : createPrivateKey(text);
    this.#sign('');
  }

  /** The secret of the moment. */
  current(): string {
    const nowSeconds = Math.floor(this.clock.nowMs() / 1000);
    if (!this.#current || this.#current.expirySeconds - marginSeconds <= nowSeconds) {
      const expirySeconds = nowSeconds + lifetimeSeconds;
      const parts = [this.setting.jwt_header, { ...this.setting.jwt_payload, iat: nowSeconds, exp: expirySeconds }].map(
        (part) => Buffer.from(JSON.stringify(part)).toString('base64url'),
      );
      const text = parts.join('.');
      this.#current = { secret: `${text}.${this.#sign(text)}`, expirySeconds };
    }
    return this.#current.secret;
  }

  #sign(text: string): string {
    const digest = digests[this.#algorithm.slice(2)];
    const kind = this.#algorithm.slice(0, 2);
    const data = Buffer.from(text);
    if (this.#algorithm === 'EdDSA') return sign(null, data, this.#key).toString('base64url');
    if (digest === undefined) throw new Error(`the algorithm ${this.#algorithm} is not known`);
    if (kind === 'HS') return createHmac(digest, this.#key).update(data).digest('base64url');
    if (kind === 'RS') return sign(digest, data, this.#key).toString('base64url');
    if (kind === 'ES') return sign(digest, data, { key: this.#key, dsaEncoding: 'ieee-p1363' }).toString('base64url');
    throw new Error(`the algorithm ${this.#algorithm} is not known`);
  }
}
