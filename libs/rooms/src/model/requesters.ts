import type { Requester } from '@rookery/platform';
import type { DraftOrigin } from './drafts.js';

/** For whom events are written. */
export interface Reader {
  readonly userId: string;
  /** The device that gets `transaction_id` of what it sent; `as:<id>` for an application service. */
  readonly deviceId?: string | undefined;
}

/** How transactions of a requester are told apart from those of the user's other devices. */
export const deviceKeyOf = (requester: Requester): string =>
  requester.deviceId ?? (requester.appserviceId === undefined ? '' : `as:${requester.appserviceId}`);

/** The reader that a requester is. */
export const readerOf = (requester: Requester): Reader => ({
  userId: requester.userId,
  deviceId: deviceKeyOf(requester),
});

/** A requester, for modules that judge what it sends. */
export const originOf = (requester: Requester, duringRoomCreation = false): DraftOrigin => ({
  requester,
  duringRoomCreation,
});

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
