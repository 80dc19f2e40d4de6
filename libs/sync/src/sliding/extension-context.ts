import type { StoredReceipt } from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import type { SyncToken } from '../request/sync-token.js';
import type { ConnectionMemory, RoomMemory } from './connections.js';
import type { Selection } from './lists.js';
import type { SlidingRequest } from './request.js';

/** Who asks for what, between which positions. */
export interface ExtensionQuery {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly since: SyncToken | undefined;
  readonly now: SyncToken;
  /** Rooms that the user is in. */
  readonly joined: ReadonlySet<string>;
  /** Those in which the user's membership changed since. */
  readonly anew: readonly string[];
  readonly request: SlidingRequest;
}

/** What is new beside the rooms, before it is known which rooms an answer is about. */
export interface ExtensionNews {
  readonly query: ExtensionQuery;
  /** Rooms in which the user has read on. */
  readonly readRooms: ReadonlySet<string>;
  readonly receipts: ReadonlyMap<string, readonly StoredReceipt[]>;
}

/** The answer that extensions are part of. */
export interface ExtensionContext {
  readonly selection: Selection;
  /** Rooms of the selection that this answer does not hold after all. */
  readonly deferred: ReadonlySet<string>;
  readonly memory: ConnectionMemory | undefined;
  /** Ids of the events that the answer shows. */
  readonly timelines: ReadonlyMap<string, ReadonlySet<string>>;
  /** What the connection remembers from now on; what extensions tell is added. */
  readonly changes: Map<string, RoomMemory>;
}

/** The part `extensions` of an answer. */
export interface ExtensionAnswer {
  readonly body: JsonObject;
  readonly isEmpty: boolean;
}

/** One extension of an answer. */
export type Written = { readonly value: JsonObject; readonly hasNews: boolean };
