import type { RoomEvent } from '@rookery/events';
import type { Conflict } from './conflict.js';

/** How one event hangs in the graph of auth events. */
export interface AuthLinks {
  readonly authEventIds: readonly string[];
  /**
   * 0 for an event without auth events, else one more than the highest generation among them. Counted by this server
   * when it stores the event: unlike `depth`, nobody else may have a say in it. With it a walk knows where to stop.
   */
  readonly generation?: number | undefined;
}

/** Where state resolution reads events from: a database, a cache, a test. Every call is a batch. */
export interface StateResProvider {
  /**
   * The events with these ids, rejected ones included; those that are unknown are left out of the answer and out of
   * the resolution. Asked once per id and resolution.
   */
  events(ids: readonly string[]): Promise<ReadonlyMap<string, RoomEvent>>;

  /** Which of these events were rejected. Left out, none were. */
  isRejected?(ids: readonly string[]): Promise<ReadonlySet<string>>;

  /**
   * The auth events of these events, without the events themselves; left out, they are read from {@link events}. Saves
   * reading whole events where only their chains matter, and with generations also most of the walking.
   */
  authLinks?(ids: readonly string[]): Promise<ReadonlyMap<string, AuthLinks>>;

  /**
   * The auth difference, from an index such as a chain cover; left out, it is found by walking the auth events.
   *
   * The auth chain of a state set holds its events and everything reachable from them along `auth_events`. The answer
   * holds the events that are in the chains of some, but not of all state sets; whether conflicted events are among them
   * does not matter. `undefined` when the index does not cover all of them, which are then walked.
   * @param conflicted per state set, the ids of those of its events that are not in every set
   * @param unconflicted the events that are in every state set, by state key
   */
  authDifference?(
    conflicted: readonly ReadonlySet<string>[],
    unconflicted: Conflict['unconflicted'],
    signal: AbortSignal | undefined,
  ): Promise<ReadonlySet<string> | undefined>;
}

/** Bounds of one resolution. */
export interface ResolveOptions {
  /** Stops the resolution, which then throws the signal's reason. */
  readonly signal?: AbortSignal;
  /** How many events may be loaded before {@link StateResolutionLimitError} is thrown. 500,000 unless told. */
  readonly maxEvents?: number;
  /** Lets others run in the middle of long work. The next turn of the event loop unless told. */
  readonly turn?: () => Promise<void>;
}

/** A resolution would have to load more events than its caller allows. */
export class StateResolutionLimitError extends Error {
  constructor(readonly maxEvents: number) {
    super(`State resolution needs more than ${maxEvents} events`);
    this.name = 'StateResolutionLimitError';
  }
}
