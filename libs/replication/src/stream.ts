import type { Db } from '@rookery/database';

/** A row of a stream with its place. */
export interface StreamRow {
  readonly position: number;
}

/** What a stream is called and how its rows are read, by whoever follows it. */
export interface StreamDefinition<Row extends StreamRow> {
  /** snake_case, as on the bus and in `stream_positions`: `events`. */
  readonly name: string;
  /**
   * Rows with `after < position <= upTo`, ascending, at most about `limit` of them but never only a part of those that share a
   * position.
   */
  read(db: Db, after: number, upTo: number, limit: number): Promise<readonly Row[]>;
}

/** Declares a stream; the owner of its tables exports it. */
export function defineStream<Row extends StreamRow>(definition: StreamDefinition<Row>): StreamDefinition<Row> {
  return Object.freeze({ ...definition });
}
