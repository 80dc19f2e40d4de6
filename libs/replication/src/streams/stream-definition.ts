import type { Db } from '@rookery/database';

/** A row of a stream with its place. */
export interface StreamRow {
  readonly position: number;
}

/**
 * Rows with `after < position <= upTo`, ascending, at most about `limit` of them but never only a part of those that share a
 * position.
 */
export type ReadStream<Row extends StreamRow> = (
  db: Db,
  after: number,
  upTo: number,
  limit: number,
) => Promise<readonly Row[]>;

/** How a stream is followed: its name, and how its rows are read. */
export interface StreamReader<Row extends StreamRow> {
  readonly name: string;
  readonly read: ReadStream<Row>;
}

/** One kind of key by which changes of a stream are remembered. */
export interface ChangeKey {
  /** How many keys are remembered, before the operator's factor (0.5 unless set); 200,000 unless told. */
  readonly maxKeys?: number;
}

/** What a stream is: its name, where its rows lie, and by what its changes are looked up. */
export interface StreamDefinition {
  /** snake_case, as on the bus, in `stream_positions` and in `stream_writers`: `events`. */
  readonly name: string;
  /** `down` counts −1, −2, −3…: events from before the server joined. `up` unless told. */
  readonly direction?: 'up' | 'down';
  /** How far the tables go, without its sign: numbering goes on behind it. Absent where the rows are in memory. */
  readonly takenUpTo?: (db: Db) => Promise<number>;
  /**
   * Any process may write rows: each of its transactions is right whoever runs it, and nobody has in memory what others change. Needs
   * rows in the database.
   */
  readonly anyProcess?: boolean;
  /** By what "anything new since then?" is asked, and answered without the database: `{ user: {}, room: {} }`. */
  readonly keys?: Readonly<Record<string, ChangeKey>>;
  /** For followers; absent where nobody follows the stream. */
  readonly read?: ReadStream<StreamRow>;
}

/** The kinds of key of a stream. */
export type KeysOf<D extends StreamDefinition> =
  D['keys'] extends Readonly<Record<infer Key extends string, ChangeKey>> ? Key : never;

/** Declares a stream; the owner of its tables exports it. */
export function defineStream<const D extends StreamDefinition>(definition: D): Readonly<D> {
  return Object.freeze({ ...definition });
}
