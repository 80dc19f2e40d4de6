import { MatrixError } from '@rookery/matrix-types';

const longestRoomId = 255;

/** @throws MatrixError 400 `M_INVALID_PARAM` */
export function checkRoomId(roomId: string): void {
  if (typeof roomId !== 'string' || !roomId.startsWith('!') || Buffer.byteLength(roomId) > longestRoomId) {
    throw MatrixError.notRoomId();
  }
}
