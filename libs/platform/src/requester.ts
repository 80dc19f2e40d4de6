/** Who makes a request, after its token was checked. Passed as an argument; never looked up. */
export interface Requester {
  /** Full user id, for example `@alice:example.org`. */
  readonly userId: string;
  /** Absent for application services that do not act as a device, and for guests without one. */
  readonly deviceId?: string | undefined;
  /** Row id of the access token; absent for application services. */
  readonly accessTokenId?: number | undefined;
  readonly isGuest: boolean;
  /** Server administrator. */
  readonly isAdmin: boolean;
  /** Events of a shadow-banned user are answered as if sent, and go nowhere. */
  readonly shadowBanned: boolean;
  readonly suspended: boolean;
  readonly locked: boolean;
  /** Id of the application service whose token was used. */
  readonly appserviceId?: string | undefined;
  /** The administrator who acts as this user (puppeting). */
  readonly puppetedBy?: string | undefined;
  /** Limits of the client API do not apply: a trusted application service, or an administrator's override. */
  readonly rateLimitExempt?: boolean | undefined;
  /** IP address and user agent of the request, where it came over HTTP. */
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
  /** Id of the HTTP request, the one in the logs. */
  readonly requestId?: string | undefined;
}

/** A user for whom the server acts. */
export const serverRequester = (userId: string): Requester => ({
  userId,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  rateLimitExempt: true,
});
