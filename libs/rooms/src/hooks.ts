import { Injectable } from '@nestjs/common';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import type { Tx } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import type { HistoryRemovalReason } from '@rookery/module-api';
import type { GateVerdict } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import type { StoredEvent } from './model/stored-event.js';

/** A room as it is after a batch of events; valid for the duration of a hook. */
export interface RoomView {
  readonly roomId: string;
  readonly rules: RoomVersionRules;
  /** The event that holds a piece of current state. */
  stateId(type: string, stateKey: string): string | undefined;
  /** The same, loaded: at once when it was used lately, else a promise that costs one query. */
  state(type: string, stateKey: string): RoomEvent | undefined | Promise<RoomEvent | undefined>;
  /** Joined users of this server. */
  readonly localMembers: ReadonlySet<string>;
  readonly joinedCount: number;
  /** Other servers with a joined member; the same list as long as they are the same. */
  readonly remoteServers: readonly string[];
  /** Not all of its members are known yet (MSC3902). */
  readonly isPartial: boolean;
}

/**
 * What an event means, unless something else is known of a member, to everybody in its room: the columns `push_*` of its row
 * in `events`. They belong to the lib of notifications, which reads them, changes them later and knows what is in them; the
 * writer of events only puts them into the row that it writes anyway, so that a note costs no statement and no page.
 */
export interface PushNote {
  /** `push_thread`; undefined where the event notifies nobody by default. The row of an event without a note has NULL there, too. */
  readonly thread: string | undefined;
  /** `push_highlight` */
  readonly highlight: boolean;
  /** `push_actions`; undefined for what is usual. */
  readonly actions: string | undefined;
  /** `push_except`; undefined for nobody. */
  readonly except: string | undefined;
}

/** A change of the member event that counts for a user, be it by an event of the batch or by state resolution. */
export interface MemberMove {
  readonly userId: string;
  /** Of the event that brought it about. */
  readonly streamOrdering: number;
  /** The event that counts now, and the one that did; absent for none. */
  readonly eventId: string | undefined;
  readonly prevEventId: string | undefined;
  /** What that event says; undefined where the user has no membership any more. */
  readonly membership: Membership | undefined;
  /** The event that counts now. */
  readonly event: RoomEvent | undefined;
}

/** Events of one room that become durable together, in stream order. */
export interface EventBatch {
  readonly roomId: string;
  /** All of them: ask {@link isServable} before anything is derived for clients. */
  readonly events: readonly StoredEvent[];
  /** What became of memberships, in order. Not what happens to memberships of rooms in which this server has nobody. */
  readonly moves: readonly MemberMove[];
  /** Events whose JSON was received from elsewhere and lies in the past (negative stream orderings). */
  readonly backfilled: boolean;
  /**
   * All members of the room have become known (MSC3902); there are no events. Some of them may have become known before, in batches
   * that have no events either, and not this. Other servers that were in it meanwhile, or are, and
   * were not told of what happened here.
   */
  readonly missedServers?: readonly string[] | undefined;
  /** Members of this server who may not see an event, by its id: it is of a fork whose server had not heard of them. */
  readonly hiddenFrom: ReadonlyMap<string, ReadonlySet<string>>;
  /** After the batch. */
  readonly room: RoomView;
  /** Forward extremities after the batch, and how many of them it found and left in place. Ask while the hook runs. */
  extremities(): { readonly now: number; readonly left: number };
  /** Whether current state of a type changed: by events of the batch, or because they made state resolution choose others. */
  changed(type: string): boolean;
  /** Gives an event of the batch its note. Only while a hook prepares; what comes later is in no row. */
  note(eventId: string, note: PushNote): void;
}

/** What another process says of events that it has stored. */
export interface NewsFromElsewhere {
  /** With new events. */
  readonly rooms: readonly string[];
  /** Those whose current state may have changed. */
  readonly states: readonly string[];
  /** Users whose membership of one of them may have changed. */
  readonly members: readonly string[];
}

/** What a higher lib does when events are stored. */
export interface RoomHook<Prepared = unknown> {
  /**
   * Reads and computes before the transaction. A rejection fails the batch: only for what must not be missed. The events have
   * their positions, and what is stored after them in any room is shown only after them: ask the database and nobody else.
   * Answer without a promise where nothing has to be read.
   */
  prepare?(batch: EventBatch): Prepared | Promise<Prepared>;
  /**
   * Writes in the transaction of the events, which may hold events of other rooms as well. May run again, after a deadlock or
   * because another room's part of it failed: no effect beyond `tx`. Prefer `exec` and `insertMany`, which nobody waits for.
   */
  inTransaction?(tx: Tx, batch: EventBatch, prepared: Prepared | undefined): Promise<void>;
  /** Best effort once durable; must not throw or block. */
  afterCommit?(batch: EventBatch, prepared: Prepared | undefined): void;
  /**
   * Another process has stored events: what is remembered of these rooms and users is true no more, and what is being read may
   * be older. Nothing told: events may have been missed, of any room and user. Must not throw or block.
   */
  onElsewhere?(news: NewsFromElsewhere | undefined): void;
  /** A user of this server has forgotten a room. Must not throw. */
  onForgotten?(userId: string, roomId: string): void;
  /**
   * A user of this server came into the room that replaces one that they know: takes along what they have set for that one.
   * Runs after the join is durable; a rejection is logged.
   */
  onFollowed?(userId: string, oldRoomId: string, newRoomId: string): Promise<void>;
  /** A room was replaced by another. Must not throw. */
  onUpgraded?(oldRoomId: string, newRoomId: string, userId: string): void;
  /**
   * Whether what was said in a room may be removed for good; nothing for those who have no say in it. Must not throw.
   * @param by an administrator who wants it; otherwise it is due
   */
  mayRemoveHistory?(roomId: string, reason: HistoryRemovalReason, by?: Requester): Promise<GateVerdict | undefined>;
  /**
   * Deletes what was derived from events that are being purged: they leave the timeline.
   * @param stay their rows stay in the database; otherwise they go right after
   */
  onEventsPurged?(tx: Tx, roomId: string, eventIds: readonly string[], stay: boolean): Promise<void>;
  /**
   * Deletes some of what was derived from a room that is about to be deleted, where there may be much of it, in a transaction of its own.
   * @returns whether there may be more
   */
  purgeSome?(tx: Tx, roomId: string): Promise<boolean>;
  /** Deletes everything that was derived from a room, in the transaction that deletes the room. */
  onRoomPurged?(tx: Tx, roomId: string): Promise<void>;
}

/** Where higher libs attach to the storing of events. Subscribe while the application starts. */
@Injectable()
export class RoomHooks {
  readonly #hooks: RoomHook[] = [];

  subscribe<Prepared>(hook: RoomHook<Prepared>): void {
    this.#hooks.push(hook as RoomHook);
  }

  /** In order of subscription. */
  get all(): readonly RoomHook[] {
    return this.#hooks;
  }
}
