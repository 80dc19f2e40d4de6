import type { OidcUserAttributes } from './mapping.js';

/** Who is at the browser during a sign-on, and what the sign-on is for. */
export interface SignOnContext {
  /** The browser's request, with its body; its URL is the public one. The server's own cookies are left out. */
  readonly request: Request;
  /** The full address below the server at which {@link IdentityProvider.callback} is called, by GET or POST. */
  readonly callbackUrl: string;
  /**
   * `login`: somebody wants to sign in. `uia`: a user who signed on here before confirms an operation; a provider should have
   * them prove themselves again.
   */
  readonly purpose: 'login' | 'uia';
  /** Id of the request, the one in the server's log. */
  readonly requestId: string | undefined;
  readonly ip: string;
  readonly userAgent: string;
}

/** A sign-on that comes back: what {@link SignOnContext} says, and what the provider kept. */
export interface SignOnCallback extends SignOnContext {
  /** The `state` of the step before, as JSON makes it; `undefined` where it gave none. Nobody else has seen or changed it. */
  readonly state: unknown;
}

/** Somebody whom a provider vouches for. */
export interface SignedOn {
  /** By which the provider knows the person for good: 1 to 1,024 characters that are never given to somebody else. */
  readonly remoteId: string;
  /** The provider's own session, which {@link IdentityProvider.logout} may end. */
  readonly sessionId?: string | undefined;
  /** What the provider said of the person, for {@link IdentityProvider.profile}. */
  readonly claims: Readonly<Record<string, unknown>>;
  /**
   * What {@link IdentityProvider.refresh} needs: a JSON value of at most 16 KiB. Stored encrypted until the session ends.
   */
  readonly tokens?: unknown;
}

/**
 * What comes next in a sign-on: the browser goes elsewhere (`redirect`, an http or https address), sees a page (`page`, whose
 * forms and links lead to the `callbackUrl`), has signed on (`identity`), or does not get in (`refused`, shown on the server's own
 * page for errors). `state` is kept in the browser, sealed, for the next call: a JSON value of at most 2 KiB.
 */
export type SignOnStep =
  | { readonly redirect: string; readonly state?: unknown }
  | { readonly page: string; readonly status?: number; readonly state?: unknown }
  | { readonly identity: SignedOn }
  | {
      readonly refused: {
        /** A short hint for administrators: `access_denied`. */
        readonly error: string;
        /** For people. */
        readonly description: string;
        /** Of the page, 400 to 599; default 403. */
        readonly status?: number;
      };
    };

/** Whom a provider logs out: one session of theirs, or all of a person. Where both are given, the session has to be the person's. */
export interface ProviderLogout {
  readonly sessionId?: string | undefined;
  readonly remoteId?: string | undefined;
  /** Of the request, which then counts once. */
  readonly id?: string | undefined;
}

/** What an account is made of, and which account that is. */
export interface SignOnProfile extends OidcUserAttributes {
  /**
   * Localpart of an account that belongs to the person already, though nobody signed on to it by this provider: the two are tied
   * together. Only where the provider's word is enough to hand over an account of that name.
   */
  readonly existingLocalpart?: string | undefined;
  /** More fields for the answer to the login. */
  readonly extraFields?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * A place where people sign on, beside those of the settings: `GET /login` lists it, `/login/sso/redirect/{id}` leads to it. The
 * server does the rest as for its own: names, terms, confirmation, pictures, interactive auth, the way back to the client.
 *
 * Each call has 20 seconds. A call that throws a MatrixError below 500 refuses with its words; whatever else is thrown is logged
 * with the module's name, and the person reads that the provider cannot be reached.
 */
export interface IdentityProvider {
  /**
   * Never changes: it is stored with every account. 1 to 255 characters of `A-Z a-z 0-9 - . _ ~`; `cas`, `saml`, `oidc` and what
   * begins with `oidc-` are the server's. Unique on a server; one module may register several providers.
   */
  readonly id: string;
  /** For people. */
  readonly name: string;
  /** An `mxc:` URI. */
  readonly icon?: string | undefined;
  /** How clients may style the button: `github`, `google`, `apple`... @spec client-server-api#definition-mloginsso-flow-schema */
  readonly brand?: string | undefined;
  /** Whether a sign-on may make an account; default true. */
  readonly registers?: boolean | undefined;
  /** Begins a sign-on. It may be called more than once for one person. */
  begin(context: SignOnContext): Promise<SignOnStep> | SignOnStep;
  /** The browser comes back, or a form of a page is sent. Only with a sign-on that began in the same browser within an hour. */
  callback(context: SignOnCallback): Promise<SignOnStep> | SignOnStep;
  /**
   * What an account is made of, and what is put into the profile where the settings say so (`sso.update_profile_information`).
   * @param failures how many localparts of this person were taken already; called again with one more, up to 1,000 times
   */
  profile(person: SignedOn, failures: number): Promise<SignOnProfile> | SignOnProfile;
  /**
   * The provider ends sessions by itself, in a POST to `logout` beside the `callbackUrl`: checks what it sent.
   * `undefined` refuses with 400.
   */
  logout?(request: Request): Promise<ProviderLogout | undefined> | ProviderLogout | undefined;
  /**
   * Asked whenever a client renews its access token in a session that `tokens` were given for. The result takes their place;
   * `undefined`: the person is not signed on any more, and the session ends. A call that throws changes nothing.
   */
  refresh?(
    tokens: unknown,
  ): Promise<{ readonly tokens: unknown } | undefined> | { readonly tokens: unknown } | undefined;
}
