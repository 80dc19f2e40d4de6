import type { RoomEvent } from '@rookery/events';
import type { StateMap } from '@rookery/state-res';
import type { StoredEvent } from './stored-event.js';

/** A PDU whose format, hash and signatures were checked. */
export interface RemoteEvent {
  readonly event: RoomEvent;
  /** A gate refused it, or a policy server: it is kept and never served. */
  readonly softFail?: boolean | undefined;
  /** The server that sent it, for modules; else its sender's. */
  readonly origin?: string | undefined;
  /** The server that asked this one to send it on to the others in the room, which it made for that. */
  readonly onBehalfOf?: string | undefined;
  /** A local user's, which another server took from this one and sends on to the room: who helps somebody in tells the others. */
  readonly isHandedOver?: boolean | undefined;
}

/** State of a room at an event, from a server that knows it: with it an event without known ancestors can be placed. */
export interface StateAtEvent {
  /** The state before the event. */
  readonly state: readonly RoomEvent[];
  /** Its auth chain. */
  readonly authChain: readonly RoomEvent[];
}

/** All of the state of a room before an event, whose events are stored and were accepted. */
export interface KnownState {
  readonly state: StateMap;
  /** Servers with a user who has joined in it. */
  readonly servers: ReadonlySet<string>;
}

/** The state before an event: with its events, or of events that are stored. */
export type GivenState = StateAtEvent | KnownState;

/** The state before an event is that after another one, which is stored with it. */
export interface StateAfter {
  readonly after: string;
}

/** What became of a remote event. */
export type ReceiveVerdict =
  | { readonly kind: 'accepted'; readonly stored: StoredEvent }
  | { readonly kind: 'known' }
  | { readonly kind: 'softFailed' }
  /** Nothing was stored: a module that had to judge it failed. It may be judged another time. */
  | { readonly kind: 'unjudged' }
  | { readonly kind: 'rejected'; readonly reason: string }
  /** Nothing was stored: these ancestors are missing and the room's state before it cannot be known. */
  | { readonly kind: 'missingAncestors'; readonly eventIds: readonly string[] };
