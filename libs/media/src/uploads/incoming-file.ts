import type { Readable } from 'node:stream';

/** A file that a client is sending. */
export interface IncomingFile {
  readonly body: Readable;
  /** As announced; `undefined` when the client does not say. */
  readonly sizeBytes: number | undefined;
  readonly mediaType: string;
  readonly uploadName: string | undefined;
}

const longestType = 255;
const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const mediaTypePattern = new RegExp(
  `^${token}/${token}(?:\\s*;\\s*${token}=(?:${token}|"[\\x20\\x21\\x23-\\x5b\\x5d-\\x7e]*"))*$`,
);

/** The media type that a sender claims; the one of unknown bytes where that is none. */
export function claimedType(value: string | undefined): string {
  const text = value?.trim() ?? '';
  return text.length <= longestType && mediaTypePattern.test(text) ? text : 'application/octet-stream';
}

/** A name without what does not belong in one; `undefined` when nothing is left. */
export function cleanName(name: string | undefined): string | undefined {
  const clean = name?.toWellFormed().replace(/\p{Cc}/gu, '');
  return clean === '' ? undefined : clean;
}
