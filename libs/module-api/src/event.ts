/**
 * An event before it is final: what a transform sees. Plain data, frozen in every depth.
 */
export interface ModuleEventDraft {
  /** `undefined` for an event of a local client that is still being made; the id is a hash of the finished event. */
  readonly eventId: string | undefined;
  readonly roomId: string;
  /** The room version's identifier, for example `12`. */
  readonly roomVersion: string;
  readonly type: string;
  /** `undefined` for a message event. */
  readonly stateKey: string | undefined;
  readonly sender: string;
  readonly content: Readonly<Record<string, unknown>>;
  /** Milliseconds since the epoch, as the sending server claims. */
  readonly originServerTs: number;
  /** Id of the event that this one redacts. */
  readonly redacts: string | undefined;
}

/** A finished event of a room. Plain data, frozen in every depth. */
export interface ModuleEvent extends ModuleEventDraft {
  readonly eventId: string;
  readonly depth: number;
  readonly prevEventIds: readonly string[];
  readonly authEventIds: readonly string[];
  /** The event as it travels between servers, with hashes and signatures. */
  readonly pdu: Readonly<Record<string, unknown>>;
}

/**
 * The state of a room at one point. Read on demand: a callback that looks at two events costs two events, however many
 * members the room has. Reads work while the callback runs.
 */
export interface RoomStateView {
  /** One state event, or `undefined`. */
  get(type: string, stateKey?: string): Promise<ModuleEvent | undefined>;
  /** All state events of a type, in no order. A room can have very many `m.room.member` events. */
  ofType(type: string): Promise<readonly ModuleEvent[]>;
  /** The whole state, in no order. Prefer the narrower reads. */
  all(): Promise<readonly ModuleEvent[]>;
}

/** Picks state events: a type, or a type and a state key. */
export type StateFilter = readonly (string | readonly [type: string, stateKey: string])[];
