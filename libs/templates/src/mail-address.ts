import { inOneLine } from './harmless-values.js';

/** Longest address accepted, characters. */
const maxLength = 500;

/**
 * Whether a text is one plain mail address, without name or comment, that can stand in a header and in an SMTP command
 * as it is.
 */
export function isMailAddress(text: string): boolean {
  return (
    text.length <= maxLength &&
    /^[^\s\p{C}<>()[\]\\,;:"@]{1,64}@[\p{L}\p{N}](?:[\p{L}\p{M}\p{N}.-]{0,253}[\p{L}\p{N}])?$/u.test(text) &&
    !text.includes('..')
  );
}

/** A text in one line, of bounded length: nothing in it can start another header. */
export const oneLine = (text: string): string => inOneLine(text).slice(0, maxLength);
