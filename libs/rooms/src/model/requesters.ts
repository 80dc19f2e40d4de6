import type { Requester } from '@rookery/platform';
import type { DraftOrigin } from './drafts.js';

/** For whom events are written: a requester, or a user and the device that gets `transaction_id` of what it sent. */
export type Reader = Pick<Requester, 'userId' | 'deviceId' | 'appserviceId'>;

/** How transactions of a requester are told apart from those of the user's other devices. */
export const deviceKeyOf = (requester: Reader): string =>
  requester.deviceId ?? (requester.appserviceId === undefined ? '' : `as:${requester.appserviceId}`);

/** A requester, for modules that judge what it sends. */
export const originOf = (requester: Requester, duringRoomCreation = false): DraftOrigin => ({
  requester,
  duringRoomCreation,
});
