import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { SsoAddresses } from './sso-addresses.js';
import type { BrowserRequest } from './browser-request.js';

/** Browsers drop larger cookies without a word. */
const maxCookieLength = 3_900;
const cipher = 'aes-256-gcm';
const ivBytes = 12;
const tagBytes = 16;

/** How a cookie comes back. */
export interface CookieOptions {
  /** Path below the public address: `_synapse/client/oidc`. */
  readonly path: string;
  readonly lifetimeMs: number;
  /**
   * `cross-site`: with forms that other sites send, too (browsers allow that over https only); `lax`: when a link or a
   * redirect leads here; `legacy`: for browsers that do not know the attribute.
   */
  readonly site: 'cross-site' | 'lax' | 'legacy';
}

/**
 * What a browser keeps for us between two requests of a sign-on: encrypted, bound to its cookie's name, and short-lived.
 * A sign-on that nobody finishes costs the server nothing.
 */
@Injectable()
export class SealedCookies {
  readonly #key: Buffer;

  constructor(
    config: Config,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly addresses: SsoAddresses,
  ) {
    // Without a secret in the settings what browsers keep is worthless after a restart: they start again.
    const secret = config.get('macaroon_secret_key') ?? ids.bytes(32);
    this.#key = Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'rookery single sign-on cookies', 32));
  }

  /** `undefined` when the value is too large for a browser. */
  seal(name: string, value: JsonObject, lifetimeMs: number): string | undefined {
    const cookie = this.encrypt(name, value, lifetimeMs);
    return cookie.length > maxCookieLength ? undefined : cookie;
  }

  /** What was sealed under the name; `undefined` when it was not, or has expired. */
  open(name: string, cookie: string): JsonObject | undefined {
    return cookie.length > maxCookieLength ? undefined : this.decrypt(name, cookie);
  }

  /** As {@link seal}, at any length: for what the server keeps itself. */
  encrypt(name: string, value: JsonObject, lifetimeMs: number): string {
    const iv = this.ids.bytes(ivBytes);
    const encryption = createCipheriv(cipher, this.#key, iv).setAAD(Buffer.from(name));
    const text = JSON.stringify({ v: value, exp: this.clock.nowMs() + lifetimeMs });
    const sealed = Buffer.concat([encryption.update(text, 'utf8'), encryption.final()]);
    return Buffer.concat([iv, encryption.getAuthTag(), sealed]).toString('base64url');
  }

  /** What {@link encrypt} made; `undefined` when it was made under another name or key, or has expired. */
  decrypt(name: string, text: string): JsonObject | undefined {
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length < ivBytes + tagBytes) return undefined;
    try {
      const decryption = createDecipheriv(cipher, this.#key, bytes.subarray(0, ivBytes))
        .setAAD(Buffer.from(name))
        .setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
      const plain = Buffer.concat([decryption.update(bytes.subarray(ivBytes + tagBytes)), decryption.final()]);
      const { v, exp } = JSON.parse(plain.toString('utf8')) as { v: unknown; exp: number };
      return exp > this.clock.nowMs() && isJsonObject(v) ? v : undefined;
    } catch {
      return undefined;
    }
  }

  /** The value of a `Set-Cookie` header. */
  header(name: string, value: string, { path, lifetimeMs, site }: CookieOptions): string {
    const { isSecure } = this.addresses;
    const attributes = [
      `${name}=${value}`,
      `Path=${this.addresses.pathOf(path)}`,
      `Max-Age=${Math.floor(lifetimeMs / 1000)}`,
      'HttpOnly',
    ];
    if (isSecure) attributes.push('Secure');
    if (site === 'cross-site') attributes.push(isSecure ? 'SameSite=None' : 'SameSite=Lax');
    if (site === 'lax') attributes.push('SameSite=Lax');
    return attributes.join('; ');
  }

  /** The `Set-Cookie` header that takes a cookie back. */
  removal(name: string, options: Omit<CookieOptions, 'lifetimeMs'>): string {
    return this.header(name, '', { ...options, lifetimeMs: 0 });
  }
}

/** The cookies of a request by name, the first of several. Longer lists are cut. */
export function cookieOf(request: Pick<BrowserRequest, 'headers'>, name: string): string | undefined {
  const header = request.headers['cookie'];
  const text = typeof header === 'string' ? header : (header ?? []).join('; ');
  for (const part of text.slice(0, 65_536).split(';')) {
    const at = part.indexOf('=');
    if (at > 0 && part.slice(0, at).trim() === name) return part.slice(at + 1).trim();
  }
  return undefined;
}
