/** The paths of a media endpoint from before authentication: all releases have it. */
export const mediaPaths = (path: string): string[] =>
  ['r0', 'v1', 'v3'].map((version) => `/_matrix/media/${version}${path}`);

/** The path of a media endpoint that needs a token. */
export const clientMediaPath = (path: string): string => `/_matrix/client/v1/media${path}`;
