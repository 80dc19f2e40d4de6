import type { CallbackContext } from '../context.js';
import type { Permission } from '../verdicts.js';

/** What an expired or renewed account looks like to the legacy renewal endpoint. */
export interface RenewalResult {
  /** Whether the token was good. */
  readonly valid: boolean;
  /** Whether the token had been used before. */
  readonly stale: boolean;
  readonly expirationTs: number;
}

/** Accounts that run out. */
export interface AccountValidityCallbacks {
  /**
   * `is_user_expired`: asked for every request with a token but logout. `undefined` asks the next module; `true` answers
   * 403 `ORG_MATRIX_EXPIRED_ACCOUNT`.
   */
  isUserExpired?(userId: string, context: CallbackContext): Promise<boolean | undefined> | boolean | undefined;
  /** `on_user_registration`: an account was made. */
  onUserRegistration?(userId: string, context: CallbackContext): Promise<void> | void;
  /** `on_user_login`: a user logged in, or got their first device at registration. */
  onUserLogin?(
    userId: string,
    authProviderType: string | undefined,
    authProviderId: string | undefined,
    context: CallbackContext,
  ): Promise<void> | void;
  /** `on_legacy_send_mail`: the legacy endpoint that mails a renewal link. One module only. */
  onLegacySendMail?(userId: string, context: CallbackContext): Promise<void> | void;
  /** `on_legacy_renew`: the legacy endpoint behind the link of that mail. One module only. */
  onLegacyRenew?(renewalToken: string, context: CallbackContext): Promise<RenewalResult> | RenewalResult;
  /**
   * `on_legacy_admin_request`: the legacy endpoint by which an administrator renews an account; `request` is its body.
   * Gives the new end, milliseconds since the epoch. One module only.
   */
  onLegacyAdminRequest?(request: Readonly<Record<string, unknown>>, context: CallbackContext): Promise<number> | number;
}

/** A successful login by a module. */
export interface AuthSuccess {
  /** Full id of a local user; the account is made when it does not exist. */
  readonly userId: string;
  /** Told once the login is complete, with the answer that the client gets. */
  readonly onLogin?: (loginResponse: Readonly<Record<string, unknown>>) => Promise<void> | void;
}

/** A way to log in that a module checks. */
export interface AuthChecker {
  /** Login type, for example `m.login.password` or one of the module's own. */
  readonly loginType: string;
  /** Fields that the client has to send; several modules that check one type must agree on them. */
  readonly fields: readonly string[];
  /**
   * Asked at login and in user-interactive auth.
   * @param username as the client gave it: a localpart or a full user id
   * @param loginDict the fields named above, and nothing else
   * @returns nothing when this module does not know the user or the proof is wrong: the next one is asked
   */
  check(
    username: string,
    loginType: string,
    loginDict: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<AuthSuccess | undefined> | AuthSuccess | undefined;
}

/** Results of the stages of user-interactive auth, by stage. */
export type UiaResults = Readonly<Record<string, unknown>>;

/** Logging in by other means than our own passwords. */
export interface PasswordAuthProviderCallbacks {
  /** `auth_checkers`: the login types that this module checks. */
  readonly authCheckers?: readonly AuthChecker[];
  /** `check_3pid_auth`: a password login with an address instead of a user name. */
  check3pidAuth?(
    medium: string,
    address: string,
    password: string,
    context: CallbackContext,
  ): Promise<AuthSuccess | undefined> | AuthSuccess | undefined;
  /**
   * `on_logged_out`: a session is about to end, by a logout or because its device or account goes; pushers still exist.
   * One that ends because its refresh token was copied, or because somebody logs in on its device, has ended by then.
   * @param accessToken the token, where the request that ends the session carried it; else empty, since only hashes are stored
   */
  onLoggedOut?(
    userId: string,
    deviceId: string | undefined,
    accessToken: string,
    context: CallbackContext,
  ): Promise<void> | void;
  /** `get_username_for_registration`: after interactive auth. A localpart, or nothing to ask the next module. */
  getUsernameForRegistration?(
    uiaResults: UiaResults,
    params: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<string | undefined> | string | undefined;
  /** `get_displayname_for_registration`: after interactive auth. */
  getDisplaynameForRegistration?(
    uiaResults: UiaResults,
    params: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<string | undefined> | string | undefined;
  /** `is_3pid_allowed`: a user is about to bind an address to the account; `registration` when that is being made. Administrators and modules bind what they like. */
  is3pidAllowed?(
    medium: string,
    address: string,
    registration: boolean,
    context: CallbackContext,
  ): Promise<Permission> | Permission;
}

/** Being told of account data. */
export interface AccountDataCallbacks {
  /**
   * `on_account_data_updated`: account data changed, also by deletion (`content` is empty). Not told of tags.
   * @param roomId `undefined` for the account's own data
   */
  onAccountDataUpdated?(
    userId: string,
    roomId: string | undefined,
    accountDataType: string,
    content: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<void> | void;
}
