import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { authTypesFor } from '../auth/auth-types.js';
import { checkAuth } from '../auth/check-auth.js';
import { stateKeyOf } from '../state-map.js';
import type { Conflict } from './conflict.js';
import type { ResolutionEvents } from './resolution-events.js';

/**
 * Builds a state by applying sorted events, leaving out those that the auth rules refuse at their turn.
 * @spec rooms/v2#definitions
 */
export class IterativeAuthChecks {
  /** What was applied so far, over the state that was there at the start. */
  readonly applied = new Map<string, string>();

  private constructor(
    private readonly start: Conflict['unconflicted'],
    private readonly store: ResolutionEvents,
    /** Of rooms whose create event is implied: nobody cites it, but the rules look at it. */
    readonly impliedCreate: RoomEvent | undefined,
  ) {}

  /**
   * @param events all that will be applied
   * @param start the state to start from
   */
  static async prepare(
    events: Iterable<RoomEvent>,
    start: Conflict['unconflicted'],
    store: ResolutionEvents,
    rules: RoomVersionRules,
  ): Promise<IterativeAuthChecks> {
    const needed = new Set<string>();
    let createId: string | undefined;
    for (const event of events) {
      if (rules.createEventImplied) createId ??= `$${event.roomId.slice(1)}`;
      for (const id of event.authEventIds) needed.add(id);
      for (const [type, stateKey] of authTypesFor(event, rules)) {
        const id = start.get(stateKeyOf(type, stateKey));
        if (id !== undefined) needed.add(id);
      }
    }
    if (createId !== undefined) needed.add(createId);
    await store.load(needed);
    return new IterativeAuthChecks(start, store, createId === undefined ? undefined : store.get(createId));
  }

  /** Applies events in this order. */
  async apply(events: readonly RoomEvent[]): Promise<void> {
    for (const event of events) {
      await this.store.pause();
      const verdict = checkAuth(event, (type, stateKey) => this.look(event, type, stateKey));
      if (verdict.allowed) this.applied.set(stateKeyOf(event.type, event.stateKey ?? ''), event.eventId);
    }
  }

  private look(event: RoomEvent, type: string, stateKey: string): RoomEvent | undefined {
    const key = stateKeyOf(type, stateKey);
    const id = this.applied.get(key) ?? this.start.get(key);
    const found = id === undefined ? undefined : this.store.get(id);
    if (found !== undefined) return found;
    if (type === 'm.room.create' && this.impliedCreate !== undefined) return this.impliedCreate;
    for (const authId of event.authEventIds) {
      const cited = this.store.get(authId);
      if (cited?.type === type && cited.stateKey === stateKey && !this.store.isRejected(authId)) return cited;
    }
    return undefined;
  }
}
