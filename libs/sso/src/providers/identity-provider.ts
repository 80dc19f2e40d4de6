import type { JsonObject } from '@rookery/matrix-types';
import type { BrowserRequest } from '../common/browser-request.js';

/** What a sign-on is for. */
export type SsoPurpose =
  | {
      readonly kind: 'login';
      /** Where the client waits for its login token. */
      readonly redirectUrl: string;
    }
  | {
      readonly kind: 'uia';
      /** The session of interactive auth that is to be confirmed. */
      readonly session: string;
    };

/** Where a browser goes to sign on, and what it takes along. */
export interface SignOnRedirect {
  readonly location: string;
  /** Values of `Set-Cookie`. */
  readonly cookies: readonly string[];
}

/** A place where people sign on. */
export interface IdentityProvider {
  /** Never changes: it is stored with every account that came by it. */
  readonly id: string;
  readonly name: string;
  /** An `mxc:` URI. */
  readonly icon?: string | undefined;
  readonly brand?: string | undefined;
  /** Whether a sign-on may make an account. */
  readonly registers: boolean;
  /**
   * Begins a sign-on.
   * @throws SsoError `provider_unavailable`
   */
  begin(purpose: SsoPurpose, request: BrowserRequest): Promise<SignOnRedirect>;
}

/** What becomes of a person's first sign-on. */
export interface NewUser {
  /** `undefined` asks the person. */
  readonly localpart?: string | undefined;
  /** Let the person confirm or change it. */
  readonly confirmLocalpart?: boolean | undefined;
  readonly displayName?: string | undefined;
  /** Address of a picture. */
  readonly picture?: string | undefined;
  readonly emails?: readonly string[] | undefined;
}

/** Somebody who signed on, after the provider's word was checked. */
export interface SignOn {
  readonly provider: IdentityProvider;
  /** By which the provider knows the person for good. */
  readonly remoteId: string;
  /** The provider's own session, which it may end later. */
  readonly sessionId?: string | undefined;
  readonly purpose: SsoPurpose;
  readonly request: BrowserRequest;
  /**
   * What an account is made of.
   * @param failures how many names of this person were taken
   * @throws SsoError `mapping_error`
   */
  attributes(failures: number): Promise<NewUser> | NewUser;
  /** The localpart of an account that belongs to the person already, though it is not known by this provider. */
  existingLocalpart?(): Promise<string | undefined> | string | undefined;
  /** More fields for the answer to the login. */
  extraFields?(): Promise<JsonObject | undefined> | JsonObject | undefined;
  /** `Set-Cookie` headers that take back what {@link IdentityProvider.begin} gave out. */
  readonly cookies: readonly string[];
}
