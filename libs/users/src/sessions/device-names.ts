import { MatrixError } from '@rookery/matrix-types';

/** Longest name of a device, characters. */
export const longestDeviceName = 100;

/**
 * A device's name within its limit.
 * @param tooLong whether a longer name is cut (at login, where it must not keep anybody out) or refused
 * @throws MatrixError 400 `M_TOO_LARGE`
 */
export function checkDeviceName(name: string | undefined, tooLong: 'truncate' | 'refuse'): string | undefined {
  if (name === undefined) return undefined;
  const clean = name.replaceAll('\0', '');
  if (clean.length <= longestDeviceName) return clean;
  if (tooLong === 'refuse')
    throw MatrixError.valueTooLarge(`A device name may not be longer than ${longestDeviceName} characters`);
  return clean.slice(0, longestDeviceName).toWellFormed();
}
