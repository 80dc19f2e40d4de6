import type { CallbackContext, ModuleRequester } from '@rookery/module-api';
import type { Requester } from '@rookery/platform';

/** What a domain knows beyond the requester. */
export interface ContextDetails {
  readonly source?: CallbackContext['source'];
  readonly duringRoomCreation?: boolean | undefined;
  readonly origin?: string | undefined;
  /** Where there is no more of a requester. */
  readonly userId?: string | undefined;
  readonly requestId?: string | undefined;
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
}

/** Frozen when it is made. */
export class ContextForModules implements CallbackContext {
  readonly source: CallbackContext['source'];
  readonly requestId: string | undefined;
  readonly userId: string | undefined;
  readonly deviceId: string | undefined;
  readonly appserviceId: string | undefined;
  readonly ip: string | undefined;
  readonly userAgent: string | undefined;
  readonly origin: string | undefined;
  readonly isAdmin: boolean;
  readonly duringRoomCreation: boolean;

  constructor(requester: Requester | undefined, details: ContextDetails) {
    const usual = requester === undefined ? 'server' : requester.appserviceId === undefined ? 'client' : 'appservice';
    this.source = details.source ?? usual;
    this.requestId = details.requestId ?? requester?.requestId;
    this.userId = requester?.userId ?? details.userId;
    this.deviceId = requester?.deviceId;
    this.appserviceId = requester?.appserviceId;
    this.ip = details.ip ?? requester?.ip;
    this.userAgent = details.userAgent ?? requester?.userAgent;
    this.origin = details.origin;
    this.isAdmin = requester?.isAdmin ?? false;
    this.duringRoomCreation = details.duringRoomCreation ?? false;
    Object.freeze(this);
  }
}
Object.freeze(ContextForModules.prototype);

const noDetails: ContextDetails = Object.freeze({});
const nobody = new ContextForModules(undefined, noDetails);

/** The context of a callback for a request, or for nobody's (`undefined`): a federated event, a job, a login. */
export function callbackContext(
  requester: Requester | undefined,
  details: ContextDetails = noDetails,
): CallbackContext {
  return requester === undefined && details === noDetails ? nobody : new ContextForModules(requester, details);
}

/** Whether {@link callbackContext} made it: then it is frozen. */
export const isCallbackContext = (context: CallbackContext): boolean => context instanceof ContextForModules;

/** What modules are told of who makes a request. */
export const requesterForModules = ({
  userId,
  deviceId,
  isGuest,
  isAdmin,
  shadowBanned,
  appserviceId,
}: Requester): ModuleRequester => Object.freeze({ userId, deviceId, isGuest, isAdmin, shadowBanned, appserviceId });
