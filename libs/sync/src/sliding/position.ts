import { MatrixError } from '@rookery/matrix-types';
import { parseSyncToken, type SyncToken } from '../request/sync-token.js';

/** What a `pos` says: where the connection stands, and where the streams do. */
export interface Position {
  readonly connection: number;
  readonly token: SyncToken;
}

/** @throws MatrixError 400 `M_UNKNOWN_POS`: this server never gave it */
export function parsePosition(pos: string): Position {
  const [, connection, token] = /^(\d{1,15})\/(s[\d_]{1,300})$/.exec(pos) ?? [];
  try {
    if (connection !== undefined && token !== undefined)
      return { connection: Number(connection), token: parseSyncToken(token) };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
  }
  throw MatrixError.unknownPos();
}
