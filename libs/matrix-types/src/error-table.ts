import type { AnyErrcode } from './errcodes.js';

/** One kind of error. */
export interface ErrorRow {
  /** HTTP status. */
  readonly status: number;
  readonly errcode: AnyErrcode;
  /** When a client gets it; for docs/errors.md. */
  readonly when: string;
  /** What it says unless the place that finds it has something better to say. */
  readonly text?: string;
  /** Further keys of the body that it always has. */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** Says in `retry_after_ms` when to come again. */
  readonly retries?: true;
}

/**
 * Every error that this server makes: each row is a constructor of `MatrixError`, `MatrixError.userLocked()`. What others decide
 * (modules, other servers, other processes) is handed on with `MatrixError.passedOn`.
 * @spec client-server-api#standard-error-response
 */
export const errorTable = {
  // What was asked.
  badJson: { status: 400, errcode: 'M_BAD_JSON', when: 'JSON of the wrong shape' },
  notJson: { status: 400, errcode: 'M_NOT_JSON', when: 'what is no JSON', text: 'The body is not valid JSON' },
  missingBody: { status: 400, errcode: 'M_NOT_JSON', when: 'no body', text: 'A JSON body is required' },
  missingParam: { status: 400, errcode: 'M_MISSING_PARAM', when: 'something that is required is not there' },
  invalidParam: { status: 400, errcode: 'M_INVALID_PARAM', when: 'a value out of its range' },
  notUserId: {
    status: 400,
    errcode: 'M_INVALID_PARAM',
    when: 'what should be a user id is none',
    text: 'This is not a user id',
  },
  notRoomId: {
    status: 400,
    errcode: 'M_INVALID_PARAM',
    when: 'what should be a room id is none',
    text: 'This is not a room id',
  },
  notDeviceId: {
    status: 400,
    errcode: 'M_INVALID_PARAM',
    when: 'what should be a device id is none',
    text: 'This is not a device id',
  },
  transactionIdTooLong: {
    status: 400,
    errcode: 'M_INVALID_PARAM',
    when: 'a transaction id longer than any client makes',
    text: 'The transaction id is too long',
  },
  badRequest: { status: 400, errcode: 'M_UNKNOWN', when: 'what is asked cannot be, as things are' },
  unrecognized: {
    status: 404,
    errcode: 'M_UNRECOGNIZED',
    when: 'no such endpoint, or one that the settings switch off',
    text: 'Unrecognized request',
  },
  unrecognizedKind: { status: 400, errcode: 'M_UNRECOGNIZED', when: 'a kind of thing that the endpoint does not know' },
  methodNotAllowed: {
    status: 405,
    errcode: 'M_UNRECOGNIZED',
    when: 'the path is an endpoint, but not by this method',
    text: 'Method not allowed',
  },
  notImplemented: { status: 501, errcode: 'M_UNRECOGNIZED', when: 'what a module asked for is not in this server' },
  bodyCutOff: {
    status: 400,
    errcode: 'M_UNKNOWN',
    when: 'the connection ended before the body did',
    text: 'The body was cut off',
  },
  bodyTooSlow: {
    status: 408,
    errcode: 'M_UNKNOWN',
    when: 'the body takes longer than it may',
    text: 'The body took too long',
  },
  unsupportedCoding: {
    status: 415,
    errcode: 'M_UNKNOWN',
    when: 'a `Content-Encoding` that is not read',
    text: 'Bodies may be plain or gzip, nothing else',
  },
  tooLarge: { status: 413, errcode: 'M_TOO_LARGE', when: 'more bytes or values than are taken' },
  urlTooLong: { status: 414, errcode: 'M_TOO_LARGE', when: 'the URL is too long', text: 'The URL is too long' },
  valueTooLarge: { status: 400, errcode: 'M_TOO_LARGE', when: 'one value of the body is too long' },
  limitExceeded: {
    status: 429,
    errcode: 'M_LIMIT_EXCEEDED',
    when: 'too many requests; the answer has `Retry-After` too',
    text: 'Too many requests',
    retries: true,
  },
  eventChainTooLong: {
    status: 429,
    errcode: 'M_LIMIT_EXCEEDED',
    when: 'modules send events because of events because of events',
    text: 'Modules answer events with events without end',
  },

  // Who asks.
  missingToken: {
    status: 401,
    errcode: 'M_MISSING_TOKEN',
    when: 'there is no access token, or none that can be one',
    text: 'An access token is required',
  },
  unknownToken: {
    status: 401,
    errcode: 'M_UNKNOWN_TOKEN',
    when: 'the token is not known (any more); `soft_logout` says whether the device goes on to exist',
  },
  unauthorized: {
    status: 401,
    errcode: 'M_UNAUTHORIZED',
    when: 'a proof of who asks does not hold: a signature, a stage of interactive authentication',
  },
  authStageFailed: {
    status: 401,
    errcode: 'M_UNKNOWN',
    when: 'a session of interactive authentication cannot be used for this',
  },
  captchaNeeded: {
    status: 400,
    errcode: 'M_CAPTCHA_NEEDED',
    when: 'the stage needs the answer to a captcha',
    text: 'A captcha response is required',
  },
  captchaInvalid: {
    status: 401,
    errcode: 'M_CAPTCHA_INVALID',
    when: 'the captcha was not solved',
    text: 'The captcha was not solved',
  },
  forbidden: { status: 403, errcode: 'M_FORBIDDEN', when: 'who asks may not do this' },
  notInRoom: {
    status: 403,
    errcode: 'M_FORBIDDEN',
    when: 'it is for members of the room only',
    text: 'You are not in this room',
  },
  roomBlocked: {
    status: 403,
    errcode: 'M_FORBIDDEN',
    when: 'an administrator has blocked the room',
    text: 'This room has been blocked on this server',
  },
  notAdmin: {
    status: 403,
    errcode: 'M_FORBIDDEN',
    when: 'it is for server administrators only',
    text: 'You are not a server administrator',
  },
  guestAccessForbidden: {
    status: 403,
    errcode: 'M_GUEST_ACCESS_FORBIDDEN',
    when: 'guests may not do this',
    text: 'Guests may not do this',
  },
  userDeactivated: {
    status: 403,
    errcode: 'M_USER_DEACTIVATED',
    when: 'the account is closed',
    text: 'This account has been deactivated',
  },
  userLocked: {
    status: 401,
    errcode: 'M_USER_LOCKED',
    when: 'an administrator has locked the account',
    text: 'This account is locked',
    extra: { soft_logout: true },
  },
  userSuspended: {
    status: 403,
    errcode: 'M_USER_SUSPENDED',
    when: 'the account is suspended, and this acts on others',
    text: 'This account is suspended',
  },
  accountExpired: {
    status: 403,
    errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT',
    when: 'the account is past the time that account validity gives it',
    text: 'This account has expired',
  },
  awaitingApproval: {
    status: 403,
    errcode: 'ORG.MATRIX.MSC3866_USER_AWAITING_APPROVAL',
    when: 'the account is new, and no administrator has approved it yet (MSC3866)',
    text: 'This account is waiting for an administrator',
    extra: { approval_notice_medium: 'org.matrix.msc3866.none' },
  },
  consentNotGiven: {
    status: 403,
    errcode: 'M_CONSENT_NOT_GIVEN',
    when: 'the user has not agreed to the terms; `consent_uri` is where to',
  },
  resourceLimitExceeded: {
    status: 403,
    errcode: 'M_RESOURCE_LIMIT_EXCEEDED',
    when: 'the server is closed, or has as many active users as it may; `limit_type`, `admin_contact`',
  },
  unknownDevice: {
    status: 400,
    errcode: 'M_UNKNOWN_DEVICE',
    when: 'it is said for a device that is not the user’s (any more)',
    text: 'The user has no such device',
  },

  // Accounts and addresses.
  invalidUsername: { status: 400, errcode: 'M_INVALID_USERNAME', when: 'a name that no account can have' },
  userInUse: {
    status: 400,
    errcode: 'M_USER_IN_USE',
    when: 'an account has that name',
    text: 'This user name is already taken',
  },
  exclusive: {
    status: 400,
    errcode: 'M_EXCLUSIVE',
    when: 'the name lies in the namespace of an application service, or outside of its own',
    text: 'This name is reserved for an application service',
  },
  weakPassword: { status: 400, errcode: 'M_WEAK_PASSWORD', when: 'the password is not one that the policy allows' },
  passwordTooShort: {
    status: 400,
    errcode: 'M_PASSWORD_TOO_SHORT',
    when: 'the password is shorter than the policy says',
  },
  passwordNoDigit: {
    status: 400,
    errcode: 'M_PASSWORD_NO_DIGIT',
    when: 'the policy wants a digit in the password',
    text: 'The password must contain a digit',
  },
  passwordNoSymbol: {
    status: 400,
    errcode: 'M_PASSWORD_NO_SYMBOL',
    when: 'the policy wants a symbol in the password',
    text: 'The password must contain a symbol',
  },
  passwordNoUppercase: {
    status: 400,
    errcode: 'M_PASSWORD_NO_UPPERCASE',
    when: 'the policy wants an upper-case letter in the password',
    text: 'The password must contain an upper-case letter',
  },
  passwordNoLowercase: {
    status: 400,
    errcode: 'M_PASSWORD_NO_LOWERCASE',
    when: 'the policy wants a lower-case letter in the password',
    text: 'The password must contain a lower-case letter',
  },
  unknownUserType: {
    status: 400,
    errcode: 'M_UNKNOWN',
    when: 'an administrator names a type of users that is none',
    text: 'Unknown user type',
  },
  externalIdInUse: {
    status: 409,
    errcode: 'M_UNKNOWN',
    when: 'who signs in with a provider has another account already',
    text: 'This user of the sign-in provider has another account',
  },
  appserviceLoginUnsupported: {
    status: 400,
    errcode: 'M_APPSERVICE_LOGIN_UNSUPPORTED',
    when: 'an application service registers a user with a session, or logs in as one, where another service gives out the sessions',
    text: "Users get no sessions here: register with 'inhibit_login'",
  },
  threepidInUse: {
    status: 400,
    errcode: 'M_THREEPID_IN_USE',
    when: 'an address is the one of an account already',
    text: 'This address belongs to another account',
  },
  threepidNotFound: { status: 400, errcode: 'M_THREEPID_NOT_FOUND', when: 'an address is not the one of the account' },
  threepidAuthFailed: { status: 400, errcode: 'M_THREEPID_AUTH_FAILED', when: 'the proof of an address does not hold' },
  threepidNotProved: {
    status: 401,
    errcode: 'M_THREEPID_AUTH_FAILED',
    when: 'a stage of interactive authentication names an address that was not proved',
  },
  threepidDenied: {
    status: 403,
    errcode: 'M_THREEPID_DENIED',
    when: 'the settings or a module do not allow the address',
    text: 'This third-party identifier is not allowed on this server',
  },
  threepidMediumNotSupported: {
    status: 400,
    errcode: 'M_THREEPID_MEDIUM_NOT_SUPPORTED',
    when: 'addresses of that kind cannot be proved here',
  },
  tokenIncorrect: {
    status: 400,
    errcode: 'M_TOKEN_INCORRECT',
    when: 'the token of a mailed link is wrong',
    text: 'This link is not known here',
  },
  tokenExpired: {
    status: 400,
    errcode: 'M_TOKEN_EXPIRED',
    when: 'a mailed link was opened too late',
    text: 'This link has expired',
  },
  keyTooLarge: { status: 400, errcode: 'M_KEY_TOO_LARGE', when: 'the name of a profile field is too long' },
  profileTooLarge: { status: 400, errcode: 'M_PROFILE_TOO_LARGE', when: 'a profile would be too large' },
  controlledAccountData: {
    status: 405,
    errcode: 'M_BAD_JSON',
    when: 'account data that has endpoints of its own is set as account data',
  },

  // What there is not.
  notFound: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'there is no such thing, or not for who asks',
    text: 'Not found',
  },
  noSuchUser: { status: 404, errcode: 'M_NOT_FOUND', when: 'there is no such account', text: 'There is no such user' },
  noSuchDevice: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'there is no such device',
    text: 'There is no such device',
  },
  noSuchSession: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'a session was never begun, or has expired',
    text: 'Unknown or expired session',
  },
  noSuchRoom: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'the server has no such room',
    text: 'There is no such room',
  },
  noSuchAlias: { status: 404, errcode: 'M_NOT_FOUND', when: 'the alias leads nowhere', text: 'There is no such alias' },
  noSuchEvent: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'there is no such event, or who asks may not see it',
    text: 'There is no such event',
  },
  noSuchMedia: { status: 404, errcode: 'M_NOT_FOUND', when: 'there is no such file', text: 'There is no such file' },
  noServerHasRoom: {
    status: 404,
    errcode: 'M_NOT_FOUND',
    when: 'the room is not here, and nobody said which server has it',
    text: 'No server is known that has this room',
  },

  // Rooms.
  unsupportedRoomVersion: {
    status: 400,
    errcode: 'M_UNSUPPORTED_ROOM_VERSION',
    when: 'a room is to be made of a version that this server does not know, or that of somebody who is invited',
    text: 'This server does not know the room version',
  },
  incompatibleRoomVersion: {
    status: 400,
    errcode: 'M_INCOMPATIBLE_ROOM_VERSION',
    when: 'one of the two servers does not know the version of the room; `room_version`',
  },
  invalidRoomState: {
    status: 400,
    errcode: 'M_INVALID_ROOM_STATE',
    when: 'a room cannot begin with what is asked for',
  },
  roomTooComplex: {
    status: 400,
    errcode: 'M_RESOURCE_LIMIT_EXCEEDED',
    when: '`limit_remote_rooms` keeps users out of rooms as large as this',
  },
  roomInUse: { status: 400, errcode: 'M_ROOM_IN_USE', when: 'the alias of a new room is taken' },
  badAlias: { status: 400, errcode: 'M_BAD_ALIAS', when: 'an alias of the room’s list does not lead to the room' },
  inviteBlocked: {
    status: 403,
    errcode: 'M_INVITE_BLOCKED',
    when: 'who is invited does not take invites from this user',
  },
  invitesDisabled: {
    status: 403,
    errcode: 'M_FORBIDDEN',
    when: '`block_non_admin_invites`',
    text: 'Invites have been disabled on this server',
  },
  unableToAuthoriseJoin: {
    status: 400,
    errcode: 'M_UNABLE_TO_AUTHORISE_JOIN',
    when: 'a restricted join that this server cannot judge; another may',
    text: 'Nobody on this server may let you into the room',
  },
  unableToGrantJoin: {
    status: 400,
    errcode: 'M_UNABLE_TO_GRANT_JOIN',
    when: 'a restricted join that nobody of this server may allow; another may',
    text: 'Nobody on this server may let people into the room',
  },
  serverNoticesDisabled: {
    status: 400,
    errcode: 'M_UNKNOWN',
    when: 'a server notice is to be sent, and `server_notices` is not set',
    text: 'Server notices are not enabled on this server',
  },
  cannotLeaveServerNoticeRoom: {
    status: 403,
    errcode: 'M_CANNOT_LEAVE_SERVER_NOTICE_ROOM',
    when: 'an invite to server notices is rejected',
    text: 'Server notices cannot be rejected',
  },
  duplicateAnnotation: {
    status: 400,
    errcode: 'M_DUPLICATE_ANNOTATION',
    when: 'the user has annotated the event with the same key',
    text: 'You have said this of the event already',
  },
  delayTooLarge: {
    status: 400,
    errcode: 'ORG.MATRIX.MSC4140_DELAY_TOO_LARGE',
    when: 'an event is to be sent later than it may be (MSC4140); `org.matrix.msc4140.max_delay`',
  },
  redactedContentDeleted: {
    status: 404,
    errcode: 'FI.MAU.MSC2815_UNREDACTED_CONTENT_DELETED',
    when: 'what an event said before it was redacted is gone (MSC2815); `fi.mau.msc2815.content_keep_ms`',
    text: 'What was redacted is not kept any more',
  },
  notInThread: {
    status: 400,
    errcode: 'IO.ELEMENT.MSC4306.M_NOT_IN_THREAD',
    when: 'a subscription of a thread names an event of elsewhere (MSC4306)',
    text: 'The event is not in that thread',
  },
  conflictingUnsubscription: {
    status: 409,
    errcode: 'IO.ELEMENT.MSC4306.M_CONFLICTING_UNSUBSCRIPTION',
    when: 'the user has left the thread since the event that subscribes (MSC4306)',
    text: 'You have unsubscribed from this thread since then',
  },
  conflict: { status: 409, errcode: 'M_UNKNOWN', when: 'something else has the name or the id already' },

  // Keys.
  invalidSignature: {
    status: 400,
    errcode: 'M_INVALID_SIGNATURE',
    when: 'a key or a device is not signed as it must be',
  },
  wrongRoomKeysVersion: {
    status: 403,
    errcode: 'M_WRONG_ROOM_KEYS_VERSION',
    when: 'keys are put into a backup that is not the current one; `current_version`',
    text: 'This is not the current backup',
  },
  concurrentWrite: {
    status: 409,
    errcode: 'IO_ELEMENT_MSC4388_CONCURRENT_WRITE',
    when: 'the other device has written to the rendezvous session since (MSC4388)',
    text: 'Somebody else has written since',
  },

  // Sync.
  unknownPos: {
    status: 400,
    errcode: 'M_UNKNOWN_POS',
    when: 'the position of a sliding sync is not known (any more)',
    text: 'The position is not known any more: start anew',
  },

  // Media.
  notYetUploaded: {
    status: 504,
    errcode: 'M_NOT_YET_UPLOADED',
    when: 'a media id exists whose file has not come in time',
    text: 'The file was not uploaded yet',
  },
  cannotOverwriteMedia: {
    status: 409,
    errcode: 'M_CANNOT_OVERWRITE_MEDIA',
    when: 'a media id has a file already',
    text: 'This media id has a file already',
  },
  userLimitExceeded: {
    status: 403,
    errcode: 'M_USER_LIMIT_EXCEEDED',
    when: 'the user has uploaded as much as the settings allow; `info_uri`, `can_upgrade`',
    text: 'You have uploaded as much as you may for now',
  },
  remoteTooLarge: {
    status: 502,
    errcode: 'M_TOO_LARGE',
    when: 'a file of another server is larger than this one takes',
    text: 'The file is too large for this server',
  },
  previewForbidden: {
    status: 403,
    errcode: 'M_UNKNOWN',
    when: 'a preview of an address that the settings keep this server from',
    text: 'This server does not look at that address',
  },

  // Application services.
  urlNotSet: {
    status: 400,
    errcode: 'M_URL_NOT_SET',
    when: 'a ping, though the registration has no url',
    text: 'The application service has no url in its registration file',
  },
  badStatus: {
    status: 502,
    errcode: 'M_BAD_STATUS',
    when: 'the application service answered a ping with another status than 200; `status`, `body`',
  },
  connectionTimeout: {
    status: 504,
    errcode: 'M_CONNECTION_TIMEOUT',
    when: 'the application service did not answer a ping in time',
    text: 'The application service did not answer in time',
  },
  connectionFailed: {
    status: 502,
    errcode: 'M_CONNECTION_FAILED',
    when: 'the application service could not be reached for a ping',
  },

  // This server, and those behind it.
  internal: {
    status: 500,
    errcode: 'M_UNKNOWN',
    when: 'a fault of the server; its log says more',
    text: 'Internal server error',
  },
  badGateway: {
    status: 502,
    errcode: 'M_UNKNOWN',
    when: 'another server that is needed for it did not answer as it should',
  },
  fedProxyDestinationDenied: {
    status: 403,
    errcode: 'IO.ELEMENT.MSC4512.M_FEDPROXY_DESTINATION_DENIED',
    when: 'an application service wants to ask a server that this one does not speak with, or this one itself (MSC4512)',
    text: 'Requests to that server are not made here',
  },
  fedProxyPathNotAllowed: {
    status: 403,
    errcode: 'IO.ELEMENT.MSC4512.M_FEDPROXY_PATH_NOT_ALLOWED',
    when: 'an application service wants to ask another server something that is not under its own prefix (MSC4512)',
    text: 'The path is not below the prefix of the application service',
  },
  fedProxyConnectionFailed: {
    status: 502,
    errcode: 'IO.ELEMENT.MSC4512.M_FEDPROXY_CONNECTION_FAILED',
    when: 'another server, asked by an application service, did not answer (MSC4512)',
  },
  identityServerSilent: {
    status: 502,
    errcode: 'M_UNKNOWN',
    when: 'the identity server could not be reached',
    text: 'The identity server did not answer',
  },
  identityServerGarbled: {
    status: 502,
    errcode: 'M_UNKNOWN',
    when: 'the identity server answered what cannot be read',
    text: 'The identity server did not answer as it should',
  },
  unavailable: { status: 503, errcode: 'M_UNKNOWN', when: 'a part that is needed for it is away for the moment' },
  requestGivenUp: {
    status: 503,
    errcode: 'M_UNKNOWN',
    when: 'who asked went away while it waited for its turn or for a service, or the server stops',
    text: 'The request was given up',
  },
  gatewayTimeout: { status: 504, errcode: 'M_UNKNOWN', when: 'it took longer than it may' },
  storageFull: {
    status: 507,
    errcode: 'M_UNKNOWN',
    when: 'the disk is full',
    text: 'The server has no room left to store anything',
  },
} as const satisfies Readonly<Record<string, ErrorRow>>;
