/** Events of one server that may be on their way into rooms before it has to wait. */
export const mostOfOrigin = 200;

/**
 * Which servers have events on their way into rooms. Events that have stepped aside are not among them, and those of rooms that are
 * stuck do not count: a room that costs too much, or waits for somebody, holds up nobody but itself.
 */
export class EventsInHand {
  /** Origins by event, by room. */
  readonly #rooms = new Map<string, Map<string, string>>();
  /** Numbers of events by room, by origin. */
  readonly #origins = new Map<string, Map<string, number>>();
  readonly #stuck = new Set<string>();
  readonly #waiting = new Map<string, (() => void)[]>();

  /** Takes one up; of what several servers have sent the first one counts. */
  add(origin: string, roomId: string, eventId: string): void {
    let room = this.#rooms.get(roomId);
    if (!room) this.#rooms.set(roomId, (room = new Map()));
    if (room.has(eventId)) return;
    room.set(eventId, origin);
    let counts = this.#origins.get(origin);
    if (!counts) this.#origins.set(origin, (counts = new Map()));
    counts.set(roomId, (counts.get(roomId) ?? 0) + 1);
  }

  /** They are in their room, or have stepped aside. */
  remove(roomId: string, eventIds: Iterable<string>): void {
    const room = this.#rooms.get(roomId);
    if (!room) return;
    const origins = new Set<string>();
    for (const eventId of eventIds) {
      const origin = room.get(eventId);
      if (origin === undefined) continue;
      room.delete(eventId);
      origins.add(origin);
      const counts = this.#origins.get(origin)!;
      const left = counts.get(roomId)! - 1;
      if (left > 0) counts.set(roomId, left);
      else counts.delete(roomId);
      if (counts.size === 0) this.#origins.delete(origin);
    }
    if (room.size === 0) this.#rooms.delete(roomId);
    for (const origin of origins) this.#look(origin);
  }

  /** Nothing is on its way into a room any more. */
  removeAll(roomId: string): void {
    this.remove(roomId, [...(this.#rooms.get(roomId)?.keys() ?? [])]);
  }

  /** Says whether a room is stuck. */
  stuck(roomId: string, isStuck: boolean): void {
    if (!isStuck) return void this.#stuck.delete(roomId);
    this.#stuck.add(roomId);
    for (const origin of this.originsIn(roomId)) this.#look(origin);
  }

  /** Those that have sent what is on its way into a room. */
  originsIn(roomId: string): Set<string> {
    return new Set(this.#rooms.get(roomId)?.values());
  }

  /** Events of a server that are on their way. */
  of(origin: string): number {
    let sum = 0;
    for (const [roomId, count] of this.#origins.get(origin) ?? []) if (!this.#stuck.has(roomId)) sum += count;
    return sum;
  }

  /** Resolves when a server may send more. */
  room(origin: string): Promise<void> {
    if (this.of(origin) < mostOfOrigin) return Promise.resolve();
    return new Promise((done) => {
      const waiting = this.#waiting.get(origin);
      if (waiting) waiting.push(done);
      else this.#waiting.set(origin, [done]);
    });
  }

  /** Has all go on that wait. */
  release(): void {
    for (const waiting of this.#waiting.values()) for (const done of waiting) done();
    this.#waiting.clear();
  }

  #look(origin: string): void {
    const waiting = this.#waiting.get(origin);
    if (!waiting || this.of(origin) >= mostOfOrigin) return;
    this.#waiting.delete(origin);
    for (const done of waiting) done();
  }
}
