import { isJsonObject } from '@rookery/matrix-types';

/** The media that an event shows: its file and the file's thumbnail. Encrypted files do not count, their contents say nothing. */
export function mediaInContent(content: Readonly<Record<string, unknown>>): string[] {
  const { url, info } = content;
  const found = [url, isJsonObject(info) ? info['thumbnail_url'] : undefined];
  return found.filter((uri): uri is string => typeof uri === 'string' && uri.startsWith('mxc://'));
}
