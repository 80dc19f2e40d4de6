import type { ModuleEvent } from './event.js';

/**
 * The endpoint by which events reached another server. Events sent by `/send` were taken; those of the others were handed out
 * to a server that asked, and whether they arrived is not known. More may be added.
 */
export type FederatedEventDeliveryMethod =
  '/send' | '/backfill' | '/get_missing_events' | '/event' | '/event_auth' | '/state' | '/send_join';

/** Whole, signed events that another server got. */
export interface FederatedEventDelivery {
  /** The server that got them. */
  readonly serverName: string;
  /** At least one; not always all that one request delivered. */
  readonly events: readonly ModuleEvent[];
  readonly method: FederatedEventDeliveryMethod;
}
