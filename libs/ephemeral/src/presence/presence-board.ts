import type { Interest } from './presence-routing.js';
import { offlineState, type PresenceState } from '../model/presence-state.js';

/** Changes remembered one by one. */
const maxChanges = 20_000;

interface Shown {
  readonly state: PresenceState;
  readonly position: number;
  readonly rooms: Set<string>;
}

/** What somebody may see: the rooms joined, and which of them are new to the client. */
export interface BoardQuery {
  readonly userId: string;
  readonly joinedRooms: ReadonlySet<string>;
  readonly freshRooms: readonly string[];
  readonly after: number;
  readonly upTo: number;
  /** Whom somebody gets to see beyond that. */
  readonly interest?: Interest | undefined;
}

/**
 * The presences that were told lately, in memory: of everybody who is not offline, and of those who went offline not long
 * ago. Indexed by room, so that a look costs what it finds.
 */
export class PresenceBoard {
  readonly #users = new Map<string, Shown>();
  readonly #byRoom = new Map<string, Set<string>>();
  // In the order of positions.
  #changes: { readonly position: number; readonly userId: string }[] = [];
  #earliest: number;

  constructor(position: number) {
    this.#earliest = position;
  }

  /** Since this position every change is known. */
  get earliestKnown(): number {
    return this.#earliest;
  }

  get size(): number {
    return this.#users.size;
  }

  find(userId: string): PresenceState | undefined {
    return this.#users.get(userId)?.state;
  }

  /** The rooms of a user who is on the board. */
  roomsOf(userId: string): ReadonlySet<string> | undefined {
    return this.#users.get(userId)?.rooms;
  }

  /** Everybody on the board who is not offline. */
  *present(): Generator<PresenceState> {
    for (const { state } of this.#users.values()) if (state.state !== 'offline') yield state;
  }

  /** Puts a presence up. Positions must not go down. */
  show(state: PresenceState, position: number, rooms: Set<string>): void {
    const { userId } = state;
    this.#unindex(userId);
    this.#users.set(userId, { state, position, rooms });
    if (state.state !== 'offline') for (const roomId of rooms) this.#index(roomId, userId);
    this.#changes.push({ position, userId });
    if (this.#changes.length > maxChanges) this.#forget();
  }

  /** Puts up what was so before: no change. */
  restore(state: PresenceState, position: number, rooms: Set<string>): void {
    this.#users.set(state.userId, { state, position, rooms });
    for (const roomId of rooms) this.#index(roomId, state.userId);
  }

  /** A user on the board joined or left a room. @returns whether the user is there and not offline */
  moved(userId: string, roomId: string, joined: boolean): boolean {
    const shown = this.#users.get(userId);
    if (shown === undefined) return false;
    const present = shown.state.state !== 'offline';
    if (joined) {
      shown.rooms.add(roomId);
      if (present) this.#index(roomId, userId);
    } else {
      shown.rooms.delete(roomId);
      this.#leave(roomId, userId);
    }
    return present;
  }

  /** What changed for somebody in `(after, upTo]`, and who is there in the fresh rooms. Own presence is part of it. */
  news({ userId, joinedRooms, freshRooms, after, upTo, interest }: BoardQuery): PresenceState[] {
    const found = new Map<string, PresenceState>();
    for (let i = this.#changes.length - 1; i >= 0; i--) {
      const change = this.#changes[i];
      if (change === undefined || change.position <= after) break;
      if (change.position > upTo || found.has(change.userId)) continue;
      const shown = this.#users.get(change.userId);
      if (!shown) continue;
      if (change.userId === userId || shares(shown.rooms, joinedRooms) || interest?.(change.userId))
        found.set(change.userId, shown.state);
    }
    for (const roomId of freshRooms) {
      for (const other of this.#byRoom.get(roomId) ?? []) {
        const shown = found.has(other) ? undefined : this.#users.get(other);
        if (shown) found.set(other, shown.state);
      }
    }
    return [...found.values()];
  }

  /** Whether {@link news} may find a change; `false` is certain. */
  changedSince(after: number): boolean {
    return after < this.#earliest || (this.#changes.at(-1)?.position ?? 0) > after;
  }

  #index(roomId: string, userId: string): void {
    const users = this.#byRoom.get(roomId);
    if (users) users.add(userId);
    else this.#byRoom.set(roomId, new Set([userId]));
  }

  #unindex(userId: string): void {
    for (const roomId of this.#users.get(userId)?.rooms ?? []) this.#leave(roomId, userId);
  }

  #leave(roomId: string, userId: string): void {
    const users = this.#byRoom.get(roomId);
    users?.delete(userId);
    if (users?.size === 0) this.#byRoom.delete(roomId);
  }

  /** Forgets the older half of the changes, and those who went offline in it. */
  #forget(): void {
    const kept = this.#changes.slice(maxChanges / 2);
    const gone = this.#changes.slice(0, maxChanges / 2);
    this.#changes = kept;
    this.#earliest = gone.at(-1)?.position ?? this.#earliest;
    for (const { userId } of gone) {
      const shown = this.#users.get(userId) ?? { state: offlineState(userId), position: 0 };
      if (shown.state.state === 'offline' && shown.position <= this.#earliest) this.#users.delete(userId);
    }
  }
}

/** Whether two sets of rooms have one in common. */
export function shares(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  const [few, many] = a.size < b.size ? [a, b] : [b, a];
  for (const roomId of few) if (many.has(roomId)) return true;
  return false;
}
