import type { Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import type { ActingModule } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import type { ClientTransaction } from './stored-event.js';

/**
 * What is done without limits, and shown to no spam checker: by the server on its own account (`true`), which no third-party rule sees
 * either; or by a module, and those of the other modules see it.
 */
export type Unchecked = boolean | ActingModule;

/** An event that a local user, or the server itself, wants to exist. Plain data: it may travel between processes. */
export interface EventDraft {
  readonly roomId: string;
  readonly type: string;
  /** Absent for a message event. */
  readonly stateKey?: string | undefined;
  /** A user of this server. */
  readonly sender: string;
  readonly content: Readonly<JsonObject>;
  /** Target of an `m.room.redaction`; put where the room version keeps it. */
  readonly redacts?: string | undefined;
  /** Set by application services only; milliseconds since the epoch. */
  readonly originServerTs?: number | undefined;
  /** For how long the event is sticky, milliseconds (MSC4354). */
  readonly stickyDurationMs?: number | undefined;
  /** A second draft with the same transaction makes no second event. */
  readonly transaction?: ClientTransaction | undefined;
  /** Answer with the event that holds the state already, if sender and content are the same. */
  readonly skipUnchanged?: boolean | undefined;
  /** The event whose place it takes in the room's state: where another one has it by then, nothing is stored. */
  readonly replaces?: string | undefined;
  /** Who is above limits and spam checks, if anybody. */
  readonly unchecked?: Unchecked | undefined;
  /** Who asked, for modules. */
  readonly origin?: DraftOrigin | undefined;
}

/** Another event than {@link EventDraft.replaces} says holds the state that a draft is about. */
export class StateMovedOn extends Error {
  constructor() {
    super('The state that was to be replaced is another by now');
    this.name = 'StateMovedOn';
  }
}

/** The request behind a draft. */
export interface DraftOrigin {
  readonly requester?: Requester | undefined;
  readonly requestId?: string | undefined;
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
  readonly duringRoomCreation?: boolean | undefined;
}

/** A room that is to be made, with all its first events in one step. */
export interface NewRoom {
  readonly roomVersion: string;
  readonly creator: string;
  /** `domain` room versions: the id; where the id is the create event's hash it must be absent. */
  readonly roomId?: string | undefined;
  /** The first is `m.room.create`, the second its sender's join; `roomId` of the drafts is ignored. */
  readonly drafts: readonly Omit<EventDraft, 'roomId' | 'transaction'>[];
  readonly isPublic: boolean;
  /** Local aliases to be made with the room. */
  readonly aliases?: readonly string[] | undefined;
  /** Written together with the room. */
  readonly inTransaction?: ((tx: Tx, roomId: string) => Promise<void>) | undefined;
}
