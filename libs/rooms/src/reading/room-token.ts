import { MatrixError } from '@rookery/matrix-types';

/**
 * A place in a room between two events. `topological` absent: a place in the order of arrival (as in sync tokens);
 * present: a place in the room's own order, by depth and then arrival.
 */
export interface RoomPosition {
  readonly topological: number | undefined;
  readonly stream: number;
}

/** A place in the room's own order. */
export interface PlaceInRoom extends RoomPosition {
  readonly topological: number;
}

const pattern = /^t(\d{1,16})-(-?\d{1,16})$/;
const streamPattern = /^s(-?\d{1,16})(?:_|$)/;

/** `t<depth>-<stream>` or `s<stream>`. */
export function formatRoomToken(position: RoomPosition): string {
  return position.topological === undefined ? `s${position.stream}` : `t${position.topological}-${position.stream}`;
}

/**
 * Reads a token of `/messages`, `/relations` or `/sync` (of which the first part is the events position).
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function parseRoomToken(token: string, parameter = 'from'): RoomPosition {
  const topological = pattern.exec(token);
  if (topological) return { topological: Number(topological[1]), stream: Number(topological[2]) };
  const stream = streamPattern.exec(token);
  if (stream) return { topological: undefined, stream: Number(stream[1]) };
  throw MatrixError.invalidParam(`'${parameter}' is not a pagination token`);
}
