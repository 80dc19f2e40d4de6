import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Invalidations } from '@rookery/replication';
import { selectGaps } from './timeline-gaps.query.js';

/** Gaps that are kept in memory; older ones matter to clients only that were away for very long. */
const maxGaps = 20_000;

/**
 * Where events of rooms arrived without those before them. In memory, since nearly no room has any and every sync asks.
 */
@Injectable()
export class TimelineGaps {
  /** Positions of the events after the gaps, in order. */
  readonly #gaps = new Map<string, number[]>();
  #count = 0;
  #loading: Promise<void> | undefined;

  constructor(
    private readonly database: Database,
    private readonly invalidations: Invalidations,
  ) {
    const readAnew = (): void => void (this.#loading = undefined);
    invalidations.on('timeline_gaps', { forget: readAnew, forgetAll: readAnew });
  }

  /** Reads what is stored, once. @throws what the database does; whoever comes next reads anew */
  ready(): Promise<void> {
    if (this.#loading !== undefined) return this.#loading;
    const loading = this.#load();
    this.#loading = loading;
    loading.catch(() => {
      // Told to read anew, somebody may have begun meanwhile.
      if (this.#loading === loading) this.#loading = undefined;
    });
    return loading;
  }

  /** Told by the persister, in stream order. */
  note(roomId: string, positions: readonly number[]): void {
    for (const position of positions) this.#add(roomId, position);
    if (positions.length > 0) this.invalidations.send('timeline_gaps', [roomId]);
  }

  /** The position of the last event with `after < stream ordering <= upTo` before which something is missing. */
  lastIn(roomId: string, after: number, upTo: number): number | undefined {
    return this.#gaps.get(roomId)?.findLast((position) => position > after && position <= upTo);
  }

  async #load(): Promise<void> {
    const rows = await selectGaps(this.database, maxGaps);
    const noted = [...this.#gaps];
    this.#gaps.clear();
    this.#count = 0;
    for (const row of rows.reverse()) this.#add(row.room_id, row.stream_ordering);
    for (const [roomId, positions] of noted) for (const position of positions) this.#add(roomId, position);
  }

  #add(roomId: string, position: number): void {
    const known = this.#gaps.get(roomId);
    if (known?.includes(position)) return;
    // Behind the others: the room that was quiet for longest is forgotten first.
    this.#gaps.delete(roomId);
    this.#gaps.set(roomId, [...(known ?? []), position]);
    this.#count++;
    for (const [oldest, positions] of this.#gaps) {
      if (this.#count <= maxGaps) break;
      this.#gaps.delete(oldest);
      this.#count -= positions.length;
    }
  }
}
