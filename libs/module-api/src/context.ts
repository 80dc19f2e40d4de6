/**
 * Where a call comes from: the last argument of every callback. What is not known is `undefined`; a background job has no
 * user, a federated event no device.
 */
export interface CallbackContext {
  /** What set it off. `server`: a job of the server itself, such as retention. */
  readonly source: 'client' | 'federation' | 'appservice' | 'admin' | 'module' | 'server';
  /** Id of the HTTP request, the one in the server's log. */
  readonly requestId?: string | undefined;
  /** The local user who makes the request. */
  readonly userId?: string | undefined;
  readonly deviceId?: string | undefined;
  /** The application service whose token was used. */
  readonly appserviceId?: string | undefined;
  /** The client's address. */
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
  /** The server that sent it, for `federation`. */
  readonly origin?: string | undefined;
  /** Whether the user is an administrator of the server. */
  readonly isAdmin: boolean;
  /** Whether this is part of creating or upgrading a room, whose first events are sent on the creator's behalf. */
  readonly duringRoomCreation: boolean;
}
