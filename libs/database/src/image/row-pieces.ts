import { crc32 } from 'node:zlib';
import { pieceBytes } from './image.js';

const leastBytes = pieceBytes / 8;
const mostBytes = pieceBytes * 8;

/**
 * Puts rows together into pieces. Where one ends depends on the rows alone, and not on what was before: a row that is new or
 * gone changes the piece that it is in, and hardly any other.
 */
export async function* rowPieces(groups: AsyncIterable<readonly Uint8Array[]>): AsyncGenerator<Uint8Array> {
  let rows: Uint8Array[] = [];
  let bytes = 0;
  for await (const group of groups) {
    for (const row of group) {
      rows.push(row);
      bytes += row.length;
      // The longer the row, the likelier: so that pieces have about the same length whatever the rows are like.
      const isEnd = crc32(row) % Math.max(1, Math.floor(pieceBytes / row.length)) === 0;
      if ((isEnd && bytes >= leastBytes) || bytes >= mostBytes) {
        yield Buffer.concat(rows);
        rows = [];
        bytes = 0;
      }
    }
  }
  if (bytes > 0) yield Buffer.concat(rows);
}
