import type { ModuleRequester, ProfileInfo } from '../callbacks/third-party-rules.js';
import type { Threepid } from '../callbacks/spam-checker.js';

/** What the server knows of an account. */
export interface UserInfo {
  readonly userId: string;
  readonly appserviceId: string | undefined;
  readonly consentServerNoticeSent: string | undefined;
  readonly consentVersion: string | undefined;
  readonly consentTs: number | undefined;
  /** `bot`, `support`, or `undefined` for a person. */
  readonly userType: string | undefined;
  readonly creationTs: number;
  readonly isAdmin: boolean;
  readonly isDeactivated: boolean;
  readonly isGuest: boolean;
  readonly isShadowBanned: boolean;
  readonly approved: boolean;
  readonly locked: boolean;
  readonly suspended: boolean;
}

/** A device with its token. */
export interface RegisteredDevice {
  readonly deviceId: string;
  readonly accessToken: string;
  readonly accessTokenExpiresAtMs: number | undefined;
  readonly refreshToken: string | undefined;
}

/** From where a user was seen. */
export interface UserIpAndAgent {
  readonly ip: string;
  readonly userAgent: string;
  readonly lastSeenMs: number;
}

/** Reading and writing the account data of local users. */
export interface AccountDataManager {
  /** The content, or `undefined`. Frozen. @throws MatrixError 400 when the user is not local */
  getGlobal(userId: string, dataType: string): Promise<Readonly<Record<string, unknown>> | undefined>;
  /**
   * @throws MatrixError 400 when the user is not local or the content is no object, 404 when there is no such account, 403
   *   `M_USER_DEACTIVATED` when it is closed, 405 for types that have endpoints of their own, 413 `M_TOO_LARGE`
   */
  putGlobal(userId: string, dataType: string, content: Readonly<Record<string, unknown>>): Promise<void>;
}

/** Accounts of this server. All user ids are full ids unless a parameter is called `localpart`. */
export interface AccountApi {
  /** `get_userinfo_by_id` */
  getUserinfoById(userId: string): Promise<UserInfo | undefined>;
  /**
   * `get_user_by_req`: who makes a request to a web resource of this module.
   * @throws MatrixError 401 `M_MISSING_TOKEN`, 401 `M_UNKNOWN_TOKEN`, 403 `M_GUEST_ACCESS_FORBIDDEN`, 403 for expired accounts
   */
  getUserByReq(
    request: Request,
    options?: { readonly allowGuest?: boolean; readonly allowExpired?: boolean },
  ): Promise<ModuleRequester>;
  /** `is_user_admin` */
  isUserAdmin(userId: string): Promise<boolean>;
  /** `set_user_admin` @throws MatrixError 404 when there is no such account */
  setUserAdmin(userId: string, admin: boolean): Promise<void>;
  /** `get_qualified_user_id`: the full id; one that is full already comes back as it is. */
  getQualifiedUserId(username: string): string;
  /** `is_mine`: whether a user id, room alias or other id with a domain belongs to this server. */
  isMine(id: string): boolean;
  /** `get_profile_for_user` */
  getProfileForUser(localpart: string): Promise<ProfileInfo>;
  /**
   * `set_displayname`: at most 256 characters; an empty one takes the name away.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 when there is no such account
   */
  setDisplayname(userId: string, displayName: string): Promise<void>;
  /** `get_threepids_for_user` */
  getThreepidsForUser(userId: string): Promise<readonly Threepid[]>;
  /** The local account that belongs to a user of a sign-in provider, or `undefined`. Ours. */
  getUserByExternalId(authProviderId: string, remoteUserId: string): Promise<string | undefined>;
  /**
   * The local account that an email address (`email`) or phone number (`msisdn`) belongs to, or `undefined`. Ours.
   * @throws MatrixError 400 when this is no address
   */
  getUserByThreepid(medium: string, address: string): Promise<string | undefined>;
  /** All accounts of this server, closed ones and guests included, in the order of their ids; read some at a time. Ours. */
  listUsers(): AsyncIterable<UserInfo>;
  /** `check_user_exists`: the id in its stored spelling, or `undefined`. */
  checkUserExists(userId: string): Promise<string | undefined>;
  /** `check_username` @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE` or `M_EXCLUSIVE` */
  checkUsername(localpart: string): Promise<void>;
  /**
   * `register_user`: makes an account without a password; its full id. Without a `displayName` people see the localpart.
   * @throws MatrixError as {@link checkUsername}; 400 `M_INVALID_PARAM` for a name that {@link setDisplayname} would not take,
   *   `M_THREEPID_IN_USE` for an address of another account
   */
  registerUser(
    localpart: string,
    options?: { readonly displayName?: string; readonly emails?: readonly string[]; readonly admin?: boolean },
  ): Promise<string>;
  /** `register_device`: a device, new or known, with a new token. */
  registerDevice(userId: string, deviceId?: string, initialDisplayName?: string): Promise<RegisteredDevice>;
  /** `invalidate_access_token`; an unknown token is no error. */
  invalidateAccessToken(accessToken: string): Promise<void>;
  /** `record_user_external_id`: ties a local account to a user of a sign-in provider. */
  recordUserExternalId(authProviderId: string, remoteUserId: string, registeredUserId: string): Promise<void>;
  /**
   * Undoes {@link recordUserExternalId}: by that id of a sign-in provider nobody comes to the account any more. One that is not the
   * account's changes nothing. Ours.
   */
  forgetUserExternalId(authProviderId: string, remoteUserId: string, userId: string): Promise<void>;
  /**
   * `create_login_token`: a token for `m.login.token`, good for one login.
   * @param durationInMs default 120,000 (two minutes)
   */
  createLoginToken(
    userId: string,
    durationInMs?: number,
    authProviderId?: string,
    authProviderSessionId?: string,
  ): Promise<string>;
  /**
   * `complete_sso_login_async`: finishes a single sign-on and sends the browser back to the client.
   * @returns the page or redirect that the module's web resource answers with
   */
  completeSsoLoginAsync(
    registeredUserId: string,
    request: Request,
    clientRedirectUrl: string,
    newUser?: boolean,
    authProviderId?: string,
  ): Promise<Response>;
  /**
   * `complete_sso_login`: as {@link completeSsoLoginAsync} for a user who is not new. The log has a warning.
   * @deprecated use {@link completeSsoLoginAsync}
   */
  completeSsoLogin(registeredUserId: string, request: Request, clientRedirectUrl: string): Promise<Response>;
  /** `store_remote_3pid_association`: notes that an address was bound at an identity server. */
  storeRemote3pidAssociation(userId: string, medium: string, address: string, idServer: string): Promise<void>;
  /** `get_user_ip_and_agents`, since a moment (milliseconds since the epoch; default: all that is kept). Newest first. */
  getUserIpAndAgents(userId: string, sinceMs?: number): Promise<readonly UserIpAndAgent[]>;
  /** `get_monthly_active_users_by_service`: pairs of appservice id and user id between two moments. */
  getMonthlyActiveUsersByService(
    startMs?: number,
    endMs?: number,
  ): Promise<readonly (readonly [appserviceId: string, userId: string])[]>;
  /** Closes an account for good: tokens, devices, 3PIDs go; with `erase` its messages are hidden from new readers. Ours. */
  deactivateUser(userId: string, options?: { readonly erase?: boolean }): Promise<void>;
  /** `account_data_manager` */
  readonly accountDataManager: AccountDataManager;
}
