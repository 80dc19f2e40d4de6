import type { RoomEvent } from '@rookery/events';
import type { StateMap } from '../state-map.js';

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
   * The auth difference, from an index such as a chain cover; left out, it is found by walking the auth events.
   *
   * The auth chain of a state set holds its events and everything reachable from them along `auth_events`. The answer
   * holds the events that are in the chains of some, but not of all state sets.
   * @param conflicted per state set, the ids of those of its events that are not in every set
   * @param unconflicted the events that are in every state set, by state key
   */
  authDifference?(
    conflicted: readonly ReadonlySet<string>[],
    unconflicted: StateMap,
    signal: AbortSignal | undefined,
  ): Promise<ReadonlySet<string>>;
}

/** Bounds of one resolution. */
export interface ResolveOptions {
  /** Stops the resolution, which then throws the signal's reason. */
  readonly signal?: AbortSignal;
  /** How many events may be loaded before {@link StateResolutionLimitError} is thrown. 200,000 unless told. */
  readonly maxEvents?: number;
}

/** A resolution would have to load more events than its caller allows. */
export class StateResolutionLimitError extends Error {
  constructor(readonly maxEvents: number) {
    super(`State resolution needs more than ${maxEvents} events`);
    this.name = 'StateResolutionLimitError';
  }
}
