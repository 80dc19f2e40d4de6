import { HttpReply, type InboundRequest } from '@rookery/http';
import type { MediaDownloadHeaders } from '@rookery/module-api';
import type { OpenFile } from '../storage/media-files.js';
import { contentDisposition as dispositionOf, servedType } from '../downloads/content-disposition.js';

/** How a file goes out. */
export interface FileReplyOptions {
  readonly mediaType: string;
  readonly name: string | undefined;
  /** Changes with the contents; letters, digits and hyphens. */
  readonly etag: string;
  /** Only those with a token may see it: shared caches must not keep it. */
  readonly authenticated: boolean;
}

/** Nothing in a file may run, or reach out, even when a browser opens it by itself. */
const policy =
  "sandbox; default-src 'none'; script-src 'none'; plugin-types application/pdf; style-src 'unsafe-inline'; media-src 'self'; object-src 'self';";

const cacheSeconds = 86_400;

/** The bytes that a `Range` header asks for; `undefined` for the whole file, `'none'` when there are no such bytes. */
export function rangeOf(
  header: string | undefined,
  sizeBytes: number,
): { readonly start: number; readonly end: number } | 'none' | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '');
  if (match === null) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return undefined;
  if (first === '') {
    const length = Math.min(Number(last), sizeBytes);
    return length === 0 ? 'none' : { start: sizeBytes - length, end: sizeBytes - 1 };
  }
  const start = Number(first);
  const end = last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  if (last !== '' && Number(last) < start) return undefined;
  return start >= sizeBytes ? 'none' : { start, end };
}

const headerText = (value: string | readonly string[] | undefined): string | undefined =>
  typeof value === 'string' ? value : undefined;

/** Whether the client has this version already. */
function isKnown(request: Pick<InboundRequest, 'headers'>, etag: string): boolean {
  const known = headerText(request.headers['if-none-match']);
  return (
    known !== undefined &&
    (known.trim() === '*' || known.split(',').some((one) => one.trim().replace(/^W\//, '') === etag))
  );
}

/** What a file goes out with, wherever a client gets it. */
export const headersOf = (mediaType: string, name: string | undefined): MediaDownloadHeaders => ({
  contentType: servedType(mediaType),
  contentDisposition: dispositionOf(mediaType, name),
});

/** Sends a client elsewhere for a file. Nobody keeps the address: it is good for a while, and for whoever asked. */
export const redirectReply = (url: string): HttpReply =>
  new HttpReply(
    307,
    { location: url, 'cache-control': 'no-store', 'cross-origin-resource-policy': 'cross-origin' },
    undefined,
  );

/**
 * Answers with a file, a part of it, or nothing but headers when the client has it already. The file is closed by whoever
 * sends the answer.
 */
export async function fileReply(
  request: Pick<InboundRequest, 'headers'>,
  file: OpenFile,
  options: FileReplyOptions,
): Promise<HttpReply> {
  const etag = `"${options.etag}"`;
  const { contentType, contentDisposition } = headersOf(options.mediaType, options.name);
  const headers: Record<string, string> = {
    'content-type': contentType,
    'content-disposition': contentDisposition,
    'content-security-policy': policy,
    'cross-origin-resource-policy': 'cross-origin',
    'x-content-type-options': 'nosniff',
    'x-robots-tag': 'noindex, nofollow, noarchive, noimageindex',
    'referrer-policy': 'no-referrer',
    'cache-control': `${options.authenticated ? 'private' : 'public'}, max-age=${cacheSeconds}, immutable`,
    'accept-ranges': 'bytes',
    etag,
  };
  if (isKnown(request, etag)) {
    await file.close();
    return new HttpReply(304, headers, undefined);
  }
  const condition = headerText(request.headers['if-range']);
  const range =
    condition === undefined || condition.trim() === etag
      ? rangeOf(headerText(request.headers['range']), file.sizeBytes)
      : undefined;
  if (range === 'none') {
    await file.close();
    return new HttpReply(416, { ...headers, 'content-range': `bytes */${file.sizeBytes}` }, undefined);
  }
  if (file.sizeBytes === 0) {
    await file.close();
    return new HttpReply(200, { ...headers, 'content-length': '0' }, new Uint8Array());
  }
  if (range === undefined) {
    return new HttpReply(200, { ...headers, 'content-length': String(file.sizeBytes) }, file.stream());
  }
  const { start, end } = range;
  return new HttpReply(
    206,
    {
      ...headers,
      'content-length': String(end - start + 1),
      'content-range': `bytes ${start}-${end}/${file.sizeBytes}`,
    },
    file.stream(range),
  );
}
