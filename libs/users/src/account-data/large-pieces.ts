import type { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { batchesBySize, KeyedSemaphore, ownTurn } from '@rookery/platform';
import { type AccountDataRow, type AccountDataTable, contentsOf } from './account-data.query.js';

/** What is read, or parsed, in a turn of the event loop, bytes; a piece that is larger has a turn of its own. */
const bytesPerTurn = 262_144;
/** Reads for one user at once: each may be of all that the user has. */
const readsOfUser = 4;

/** Reads account data, large pieces in turns of the event loop of their own. */
export class LargePieces {
  readonly #reads = new KeyedSemaphore(readsOfUser);

  constructor(private readonly database: Database) {}

  /**
   * Rows with all their contents, in the order in which they were found; without those that were changed since.
   * @param find reads them, large ones without their contents
   */
  read<Row extends AccountDataRow>(
    userId: string,
    table: AccountDataTable,
    find: () => Promise<readonly Row[]>,
  ): Promise<readonly Row[]> {
    return this.#reads.run(userId, async () => {
      const rows = await find();
      const lacking = rows.filter(({ content }) => content === '');
      if (lacking.length === 0) return rows;
      const contents = new Map<number, string>();
      for (const part of partsOf(lacking)) {
        await ownTurn();
        const positions = part.map(({ streamId }) => streamId);
        for (const [streamId, content] of await contentsOf(this.database, table, userId, positions))
          contents.set(streamId, content);
      }
      return rows.flatMap((row) => {
        const content = row.content === '' ? contents.get(row.streamId) : row.content;
        return content === undefined ? [] : [{ ...row, content }];
      });
    });
  }
}

/** What pieces hold, in their order; much is parsed in several turns of the event loop. */
export async function parsedContents(rows: readonly AccountDataRow[]): Promise<JsonObject[]> {
  const parsed: JsonObject[] = [];
  for (const [index, part] of partsOf(rows).entries()) {
    if (index > 0) await ownTurn();
    for (const { content } of part) parsed.push(JSON.parse(content) as JsonObject);
  }
  return parsed;
}

/** Pieces in parts, each of which is read, parsed or written in a turn of the event loop. */
export const partsOf = <Row extends AccountDataRow>(rows: readonly Row[]): (readonly Row[])[] =>
  batchesBySize(rows, ({ bytes }) => bytes, bytesPerTurn);
