/** What a provider says of a person. */
export type Claims = Readonly<Record<string, unknown>>;

/** A person who signed on at an OpenID Connect provider. */
export interface OidcIdentity {
  /** Claims of the ID token and of the userinfo endpoint, together. */
  readonly userinfo: Claims;
  /** The token endpoint's answer. */
  readonly token: Claims;
  /** The provider's session, where it tells. */
  readonly sessionId: string | undefined;
}
