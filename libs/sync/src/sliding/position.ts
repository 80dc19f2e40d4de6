import { MatrixError } from '@rookery/matrix-types';
import { formatSyncToken, parseSyncToken, type SyncToken } from '../request/sync-token.js';

/** What a `pos` says: where the connection stands, and where the streams do. */
export interface Position {
  readonly connection: number;
  readonly token: SyncToken;
  /** Names the answer that gave it, among those that are remembered. */
  readonly answer: number;
  /** What lists looked like in that answer: a client that changes them is answered at once. */
  readonly lists: string;
}

const pattern = /^(\d{1,15})\/(s[\d_]{1,300})(?:\/(\d{1,15})\.([\w-]{1,11}))?$/;

/** `<connection>/<token>/<answer>.<lists>` */
export const formatPosition = ({ connection, token, answer, lists }: Position): string =>
  `${connection}/${formatSyncToken(token)}/${answer}.${lists}`;

/** @throws MatrixError 400 `M_UNKNOWN_POS`: this server never gave it */
export function parsePosition(pos: string): Position {
  // Earlier releases gave positions without the last part.
  const [, connection, token, answer = '0', lists = ''] = pattern.exec(pos) ?? [];
  try {
    if (connection !== undefined && token !== undefined)
      return { connection: Number(connection), token: parseSyncToken(token), answer: Number(answer), lists };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
  }
  throw MatrixError.unknownPos();
}
