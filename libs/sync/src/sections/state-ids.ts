/** The ids of the state of rooms, looked up as they are read; `undefined` for each that was looked at and is left out. */
export function* idsOfRooms(
  states: ReadonlyMap<string, { values(): Iterable<string | undefined> }>,
): Generator<string | undefined> {
  for (const state of states.values()) yield* state.values();
}

/**
 * Ids of a room's state, by state key, as a sync tells it: a state that it does not own, and what is different. So a room of many members costs
 * nothing but what is read of it, whenever that is.
 */
export class StateIds {
  readonly #changes = new Map<string, string | undefined>();
  readonly #leftOut: ((key: string) => boolean)[] = [];

  /** @param base stays as it is for as long as this is read */
  constructor(private readonly base: ReadonlyMap<string, string> = new Map()) {}

  get(key: string): string | undefined {
    if (this.#changes.has(key)) return this.#changes.get(key);
    return this.#isLeftOut(key) ? undefined : this.base.get(key);
  }

  set(key: string, eventId: string): void {
    this.#changes.set(key, eventId);
  }

  delete(key: string): void {
    this.#changes.set(key, undefined);
  }

  /** Takes away what there is of some keys; what is set later stays. */
  leaveOut(isLeftOut: (key: string) => boolean): void {
    this.#leftOut.push(isLeftOut);
    for (const key of this.#changes.keys()) if (isLeftOut(key)) this.#changes.delete(key);
  }

  /** All ids, looked up as they are read; `undefined` for each that is left out, so that whoever reads can count what that cost. */
  *values(): Generator<string | undefined, undefined> {
    for (const [key, eventId] of this.base)
      if (!this.#changes.has(key)) yield this.#isLeftOut(key) ? undefined : eventId;
    yield* this.#changes.values();
  }

  #isLeftOut(key: string): boolean {
    for (const isLeftOut of this.#leftOut) if (isLeftOut(key)) return true;
    return false;
  }
}
