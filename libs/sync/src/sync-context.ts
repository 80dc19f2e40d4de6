import type { SyncFilter } from '@rookery/matrix-types';
import type { DeviceMembers } from './request/device-members.js';
import type { SyncToken } from './request/sync-token.js';

/** One sync as the sections see it. */
export interface SyncContext {
  readonly userId: string;
  readonly deviceId: string | undefined;
  /** Which members the device has been sent; absent where none are left out because of that. */
  readonly lazyMembers?: DeviceMembers | undefined;
  readonly isGuest: boolean;
  /** Where the client stands; absent for an initial sync. */
  readonly since: SyncToken | undefined;
  /** Where it will stand. Every section reads up to here and no further. */
  readonly now: SyncToken;
  readonly filter: SyncFilter;
  /** The client wants all state again. */
  readonly fullState: boolean;
  readonly useStateAfter: StateAfter;
  /** What is long may be in the answer as text, a `WrittenList`. */
  readonly asText?: boolean | undefined;
  /** Events of state are written with the ids of their rooms, more than one page of them as text. */
  readonly stateNamesRoom?: boolean | undefined;
}

/**
 * Whether state is wanted as it is after the timeline, not before it; `unstable` for clients that know the name of before it
 * was specified (MSC4222).
 * @spec client-server-api#get_matrixclientv3sync
 */
export type StateAfter = boolean | 'unstable';
