import type { DialectName, Tx } from '../database.js';

/** A part of an image: a table, or whatever a database is put together from. */
export interface ImagePart {
  readonly name: string;
  /**
   * Its bytes, in pieces of up to a few megabytes. They are cut where the content says so, so that what did not change since an
   * earlier image has the same pieces. To be gone through before the next part.
   */
  readonly pieces: AsyncIterable<Uint8Array>;
}

/** Everything that a database holds, as of one moment. */
export interface DatabaseImage {
  readonly kind: DialectName;
  /** What it will be about, bytes; for people. */
  readonly sizeBytes: number;
  /** In an order in which they can be loaded. May be gone through once. */
  parts(): AsyncIterable<ImagePart>;
  /** Lets the moment go. Safe to call twice. */
  close(): Promise<void>;
}

/** For loading an image. */
export interface LoadOptions {
  /** Put right before anybody can see the database, in the transaction with everything else. */
  readonly finish?: (tx: Tx) => Promise<void>;
  /** Told after each piece. */
  readonly onProgress?: (part: string, bytes: number) => void;
}

/** About how long pieces are. */
export const pieceBytes = 524_288;
