import type { RoomEvent } from '@rookery/events';
import type { ClientTransaction } from '../model/stored-event.js';

/** An event that will be written with the batch. */
export interface StagedEvent {
  readonly event: RoomEvent;
  /** As it will lie in `event_json`. */
  readonly json: string;
  readonly outlier: boolean;
  readonly rejectedReason: string | undefined;
  readonly softFailed: boolean;
  /** The policy server is the reason. */
  readonly isSpammy?: boolean | undefined;
  readonly transaction: ClientTransaction | undefined;
  readonly replacesState: string | undefined;
  /** Group after it; absent for outliers. */
  readonly group: number | undefined;
  /** For an accepted redaction: whether it counts only for events of the sender's own server. */
  readonly redactionRecheck: boolean | undefined;
  /** It was stored as an outlier before. */
  readonly replacesOutlier: boolean;
  /** Another server made it: its previous events may be unknown. */
  readonly isRemote: boolean;
  /** The server that asked this one to send it on to the others in the room. */
  readonly onBehalfOf?: string | undefined;
  /** Another server, which took it from this one, sends it on to the room. */
  readonly isHandedOver?: boolean | undefined;
  /** A membership of a local user that is known without the room's state. */
  readonly isOutOfBand?: boolean;
  /** The state before it, where that is not the room's current state. */
  readonly fork?: { idAt(key: string): string | undefined } | undefined;
}
