import type { Requester } from '@rookery/platform';
import type { DraftOrigin } from '../pipeline/event-persister.js';
import type { Reader } from '../reading/event-serializer.js';

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
