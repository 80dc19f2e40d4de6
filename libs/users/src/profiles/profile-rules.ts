import { MatrixError } from '@rookery/matrix-types';
import type { Profile } from '../common/profile.js';

const longestDisplayName = 256;
const longestAvatarUrl = 1000;
const longestKeyBytes = 255;
/** Largest profile as JSON, bytes. */
const largestProfileBytes = 65_536;

/**
 * A field's value as it is stored; `undefined` where the value means removal.
 * @spec client-server-api#profiles
 * @throws MatrixError 400 `M_INVALID_PARAM`, `M_KEY_TOO_LARGE`
 */
export function checkProfileField(field: string, value: unknown): unknown {
  if (Buffer.byteLength(field) > longestKeyBytes)
    throw MatrixError.keyTooLarge(`The name of a profile field may not be longer than ${longestKeyBytes} bytes`);
  if (!/^[a-z][a-z0-9_.-]*$/.test(field)) throw MatrixError.invalidParam('Not a valid name of a profile field');
  if (value === undefined) return undefined;
  if (field === 'displayname') return text(field, value, longestDisplayName);
  // Bridges and old clients name avatars of other kinds than mxc://. Nobody here follows the address.
  if (field === 'avatar_url') return text(field, value, longestAvatarUrl);
  if (field === 'm.tz' && typeof value !== 'string')
    throw MatrixError.invalidParam("'m.tz' must be the name of a time zone");
  return value;
}

function text(field: string, value: unknown, longest: number): string | undefined {
  if (value === null || value === '') return undefined;
  if (typeof value !== 'string') throw MatrixError.invalidParam(`'${field}' must be a string`);
  if (value.length > longest) throw MatrixError.invalidParam(`'${field}' may not be longer than ${longest} characters`);
  if (value.includes('\0') || !value.isWellFormed())
    throw MatrixError.invalidParam(`'${field}' holds characters that cannot be stored`);
  return value;
}

/** @throws MatrixError 400 `M_PROFILE_TOO_LARGE` */
export function checkProfileSize(profile: Profile): void {
  if (Buffer.byteLength(JSON.stringify(profile)) > largestProfileBytes) {
    throw MatrixError.profileTooLarge(`A profile may not be larger than ${largestProfileBytes} bytes`);
  }
}
