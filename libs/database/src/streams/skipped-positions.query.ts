import type { Db } from '../database.js';

interface Range {
  readonly stream_name: string;
  readonly after_position: number;
  readonly up_to_position: number;
}

/**
 * Positions between what streams had given out when a backup was made and where they went on after it was restored. Whoever
 * stands there has been told things that the database does not know any more.
 */
export class SkippedPositions {
  private constructor(private readonly ranges: ReadonlyMap<string, readonly Range[]>) {}

  /** Needs the newest schema. They change only while no server runs. */
  static async load(db: Db): Promise<SkippedPositions> {
    const rows = await db.query<Range>('SELECT stream_name, after_position, up_to_position FROM skipped_positions');
    return new SkippedPositions(Map.groupBy(rows, (row) => row.stream_name));
  }

  /** Whether a position of a stream may have been given out in a time that was lost; some from just before it are taken for such. */
  has(stream: string, position: number): boolean {
    // Where a stream went on afterwards it stands until something is written to it.
    return (this.ranges.get(stream) ?? []).some(
      (range) => position > range.after_position && position < range.up_to_position,
    );
  }
}
