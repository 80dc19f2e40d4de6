/** What an OpenID Connect provider said about a user, made into an account's properties. */
export interface OidcUserAttributes {
  /** Of the new account; `undefined` asks the user. Must be valid: see {@link mapUsernameToMxidLocalpart}. */
  readonly localpart?: string | undefined;
  /** Let the user confirm or change the localpart; default false. */
  readonly confirmLocalpart?: boolean;
  readonly displayName?: string | undefined;
  /** URL of an avatar. */
  readonly picture?: string | undefined;
  readonly emails?: readonly string[];
}

/** Maps users of an OpenID Connect provider to accounts. */
export interface OidcMappingProvider {
  /** The stable id by which the provider knows the user. */
  getRemoteUserId(userinfo: Readonly<Record<string, unknown>>): string;
  /**
   * Properties of a new account.
   * @param failures how many localparts of this user were taken already; called again with one more, up to 1,000 times
   */
  mapUserAttributes(
    userinfo: Readonly<Record<string, unknown>>,
    token: Readonly<Record<string, unknown>>,
    failures: number,
  ): Promise<OidcUserAttributes> | OidcUserAttributes;
  /** More fields for the login response. */
  getExtraAttributes?(
    userinfo: Readonly<Record<string, unknown>>,
    token: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, unknown>>> | Readonly<Record<string, unknown>>;
}

/** An assertion of a SAML identity provider. */
export interface SamlResponse {
  readonly nameId: string | undefined;
  readonly issuer: string | undefined;
  /** Values by attribute name. */
  readonly attributes: Readonly<Record<string, readonly string[]>>;
}

/** What a SAML identity provider said about a user, made into an account's properties. */
export interface SamlUserAttributes {
  /** `undefined` asks the user. */
  readonly mxidLocalpart?: string | undefined;
  readonly displayName?: string | undefined;
  readonly emails?: readonly string[];
}

/** Maps users of a SAML identity provider to accounts. */
export interface SamlMappingProvider {
  /** Attributes that have to be there, and those that are used when they are. */
  getSamlAttributes(): { readonly required: readonly string[]; readonly optional: readonly string[] };
  getRemoteUserId(samlResponse: SamlResponse, clientRedirectUrl: string): string;
  /**
   * @param failures as for {@link OidcMappingProvider.mapUserAttributes}
   * @throws RedirectError to send the browser elsewhere in place of finishing the login
   */
  samlResponseToUserAttributes(
    samlResponse: SamlResponse,
    failures: number,
    clientRedirectUrl: string,
  ): Promise<SamlUserAttributes> | SamlUserAttributes;
}

/** Sends the browser elsewhere: thrown by a SAML mapping provider or a web resource. */
export class RedirectError extends Error {
  /** Brand, since a module may carry its own copy of this class. */
  readonly $$type = 'RedirectError';

  constructor(
    readonly location: string,
    readonly status: 302 | 303 | 307 = 302,
  ) {
    super(`Redirect to ${location}`);
    this.name = 'RedirectError';
  }

  static is(value: unknown): value is RedirectError {
    return typeof value === 'object' && value !== null && (value as { $$type?: unknown }).$$type === 'RedirectError';
  }
}

const allowed = /^[a-z0-9_./+-]$/;

/**
 * Makes any text a valid localpart: letters to lower case, or with `caseSensitive` to an underscore and the lower-case
 * letter; every other byte that a localpart may not hold, and `=`, to `=` and two hexadecimal digits; a leading
 * underscore, which is reserved, to `=5f`.
 * @spec appendices#mapping-from-other-character-sets
 */
export function mapUsernameToMxidLocalpart(username: string, caseSensitive = false): string {
  const folded = caseSensitive
    ? username.replace(/[A-Z_]/g, (letter) => `_${letter.toLowerCase()}`)
    : username.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  let localpart = '';
  for (const byte of new TextEncoder().encode(folded)) {
    const character = String.fromCharCode(byte);
    if (allowed.test(character)) localpart += character;
    else localpart += `=${byte.toString(16).padStart(2, '0')}`;
  }
  return localpart.startsWith('_') ? `=5f${localpart.slice(1)}` : localpart;
}
