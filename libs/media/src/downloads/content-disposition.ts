/**
 * Types that browsers may show in place: none of them can run anything.
 * @spec client-server-api#serving-inline-content
 */
const inlineTypes: ReadonlySet<string> = new Set([
  'text/css',
  'text/plain',
  'text/csv',
  'application/json',
  'application/ld+json',
  'image/jpeg',
  'image/gif',
  'image/png',
  'image/apng',
  'image/webp',
  'image/avif',
  'video/mp4',
  'video/webm',
  'video/ogg',
  'video/quicktime',
  'audio/mp4',
  'audio/webm',
  'audio/aac',
  'audio/mpeg',
  'audio/ogg',
  'audio/wave',
  'audio/wav',
  'audio/x-wav',
  'audio/x-pn-wav',
  'audio/flac',
  'audio/x-flac',
]);

const essence = (mediaType: string): string => (mediaType.split(';', 1)[0] ?? '').trim().toLowerCase();

/** The `Content-Type` of a file: text says how it is encoded. */
export const servedType = (mediaType: string): string =>
  essence(mediaType).startsWith('text/') && !/;\s*charset\s*=/i.test(mediaType)
    ? `${mediaType}; charset=UTF-8`
    : mediaType;

/** The `Content-Disposition` of a file. @param name its name, if it has one */
export function contentDisposition(mediaType: string, name: string | undefined): string {
  const kind = inlineTypes.has(essence(mediaType)) ? 'inline' : 'attachment';
  if (name === undefined || name === '') return kind;
  const text = name.toWellFormed();
  if (/^[!#$&+.^_`|~0-9A-Za-z-]+$/.test(text)) return `${kind}; filename=${text}`;
  if (/^[\x20-\x7e]*$/.test(text)) return `${kind}; filename="${text.replace(/["\\]/g, '\\$&')}"`;
  const encoded = encodeURIComponent(text).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `${kind}; filename*=utf-8''${encoded}`;
}
