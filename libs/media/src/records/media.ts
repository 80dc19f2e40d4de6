import { isValidServerName } from '@rookery/matrix-types';

/** One file of the media repository, as its row says. */
export interface Media {
  /** The server whose media it is; `undefined` for our own. */
  readonly origin: string | undefined;
  readonly mediaId: string;
  /** What the file is called on disk: the media id for our own, another one for remote media. */
  readonly fileId: string;
  /** `undefined` for an id that was reserved and has no file yet. */
  readonly sizeBytes: number | undefined;
  /** As the uploader claimed. */
  readonly mediaType: string;
  readonly uploadName: string | undefined;
  readonly createdTs: number;
  readonly lastAccessTs: number | undefined;
  /** `undefined` for remote media and what the server stored for itself. */
  readonly uploader: string | undefined;
  /** Who withheld it; `undefined` when it may be shown. */
  readonly quarantinedBy: string | undefined;
  readonly safeFromQuarantine: boolean;
  /** It is shown to logged-in users only. */
  readonly authenticated: boolean;
  /** Lower-case hexadecimal; `undefined` for files older than the column. */
  readonly sha256: string | undefined;
  /** The page it is an image of, for previews. */
  readonly urlCache: string | undefined;
}

/** Names one file: `origin` is `undefined` for our own. */
export interface MediaKey {
  readonly origin: string | undefined;
  readonly mediaId: string;
}

const longestMediaId = 255;
const mediaIdPattern = /^[A-Za-z0-9_-]+$/;

/** Whether a text can be a media id. It never holds what means something in a path. */
export const isValidMediaId = (text: string): boolean => text.length <= longestMediaId && mediaIdPattern.test(text);

/** Whether a text can be the server of a media URI and the name of a folder: no `.` or `..` is one. */
export const isValidMediaServer = (text: string): boolean => isValidServerName(text) && !/^\.+$/.test(text);

/** `mxc://server/id`. @spec client-server-api#matrix-content-mxc-uris */
export const formatMxc = (server: string, mediaId: string): string => `mxc://${server}/${mediaId}`;

/**
 * Takes an `mxc:` URI apart; a query or fragment behind it is left out.
 * @returns `undefined` when it is none
 */
export function parseMxc(uri: unknown, ownServer: string): MediaKey | undefined {
  if (typeof uri !== 'string' || uri.length > 1_000) return undefined;
  const match = /^mxc:\/\/([^/?#]+)\/([^/?#]+)(?:[?#].*)?$/.exec(uri);
  const [, server = '', mediaId = ''] = match ?? [];
  if (!isValidMediaServer(server) || !isValidMediaId(mediaId)) return undefined;
  return { origin: server === ownServer ? undefined : server, mediaId };
}
