import type { CallbackContext } from '@rookery/module-api';
import type { Requester } from '@rookery/platform';

/** What a domain knows beyond the requester. */
export interface ContextDetails {
  readonly source?: CallbackContext['source'];
  readonly duringRoomCreation?: boolean;
  readonly origin?: string | undefined;
  readonly requestId?: string | undefined;
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
}

/** The context of a callback for a request, or for nobody's (`undefined`): a federated event, a job, a login. */
export function callbackContext(requester: Requester | undefined, details: ContextDetails = {}): CallbackContext {
  const usual = requester === undefined ? 'server' : requester.appserviceId === undefined ? 'client' : 'appservice';
  return Object.freeze({
    source: details.source ?? usual,
    requestId: details.requestId ?? requester?.requestId,
    userId: requester?.userId,
    deviceId: requester?.deviceId,
    appserviceId: requester?.appserviceId,
    ip: details.ip ?? requester?.ip,
    userAgent: details.userAgent ?? requester?.userAgent,
    origin: details.origin,
    isAdmin: requester?.isAdmin ?? false,
    duringRoomCreation: details.duringRoomCreation ?? false,
  });
}
