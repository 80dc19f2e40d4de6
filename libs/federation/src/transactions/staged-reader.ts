import type { Database } from '@rookery/database';
import { selectStaged, selectStagedAgain, type StagedRow } from './staging.query.js';

/** Events of a room that are stored together: so many, and of so much text, characters. Others wait for the database as long as that takes. */
const batchSize = 50;
const batchChars = 262_144;

/** How far a room is read. */
interface Place {
  /** Whatever has no later place in the order of arrival was dealt with, or is in somebody's hands, or comes again. */
  upTo: number;
  /** Ids of events that are to be read though they have an earlier one. */
  readonly again: Set<string>;
  /** How many events are read at a time: less than usual where they are large. */
  atOnce: number;
}

/**
 * Reads what waits in rooms from the database, a batch at a time and each event once: what is in somebody's hands, which in a room with gaps are
 * thousands, costs the others nothing.
 */
export class StagedReader {
  readonly #places = new Map<string, Place>();

  constructor(private readonly database: Database) {}

  /**
   * The next batch of a room, those that come again first; empty when nothing is left to be read. The same one comes again until it
   * is {@link done}.
   * @param isAside whether an event is in somebody's hands
   */
  async next(roomId: string, limit: number, isAside: (eventId: string) => boolean): Promise<StagedRow[]> {
    const place = this.#place(roomId);
    for (;;) {
      const size = Math.min(limit, place.atOnce);
      const again: string[] = [];
      for (const eventId of place.again) {
        if (again.length === size) break;
        again.push(eventId);
      }
      const rows =
        again.length > 0
          ? await selectStagedAgain(this.database, roomId, again)
          : await selectStaged(this.database, roomId, place.upTo, size);
      const free = rows.filter((row) => !isAside(row.event_id));
      if (free.length > 0) {
        const batch = firstOf(free, (row) => row.event_json.length);
        const next = batch.length < free.length ? batch.length : 2 * place.atOnce;
        place.atOnce = Math.min(next, batchSize);
        return batch;
      }
      // They are gone, or in somebody's hands once more.
      for (const eventId of again) place.again.delete(eventId);
      if (again.length > 0) continue;
      if (rows.length === 0) return [];
      place.upTo = rows.at(-1)!.ordering;
    }
  }

  /** A batch was dealt with: each of its events is gone or in somebody's hands. */
  done(roomId: string, batch: readonly StagedRow[]): void {
    const place = this.#place(roomId);
    let isAgain = false;
    for (const { event_id: eventId } of batch) isAgain = place.again.delete(eventId) || isAgain;
    if (!isAgain) this.reached(roomId, batch.at(-1)!.ordering);
  }

  /** Everything of a room up to a place in the order was dealt with, or is in somebody's hands, without having been read here. */
  reached(roomId: string, ordering: number): void {
    const place = this.#place(roomId);
    place.upTo = Math.max(place.upTo, ordering);
  }

  /** An event is in nobody's hands any more. */
  comesAgain(roomId: string, eventId: string): void {
    this.#place(roomId).again.add(eventId);
  }

  /** An event has arrived: with a place in the order, it may be, behind which was read before it could be seen. */
  arrived(roomId: string, eventId: string, ordering: number): void {
    const place = this.#places.get(roomId);
    if (place !== undefined && ordering <= place.upTo) place.again.add(eventId);
  }

  /** Nothing waits in a room any more. */
  forget(roomId: string): void {
    this.#places.delete(roomId);
  }

  #place(roomId: string): Place {
    let place = this.#places.get(roomId);
    if (place === undefined) this.#places.set(roomId, (place = { upTo: 0, again: new Set(), atOnce: batchSize }));
    return place;
  }
}

/** The first of some events: as many as may be stored together, one at least. */
export function firstOf<Event>(events: readonly Event[], charsOf: (event: Event) => number): Event[] {
  let [count, chars] = [0, 0];
  for (const event of events.slice(0, batchSize)) {
    chars += charsOf(event);
    if (count > 0 && chars > batchChars) break;
    count++;
  }
  return events.slice(0, count);
}
