import { MatrixError } from '@rookery/matrix-types';

/**
 * Where a client stands: one position per stream. The order is part of the wire format; new streams go to the end, so that
 * tokens of older releases stay valid (a missing position counts as 0).
 */
export const tokenStreams = [
  'events',
  'presence',
  'typing',
  'receipts',
  'accountData',
  'pushRules',
  'toDevice',
  'deviceLists',
  'threads',
  'sticky',
  'profiles',
] as const;

export type TokenStream = (typeof tokenStreams)[number];
export type SyncToken = { readonly [Stream in TokenStream]: number } & {
  /** Number of the process that remembers which members the device has; only where a server has several. */
  readonly home?: number | undefined;
};

/** Always in the same place, behind streams that are yet to come. */
const homePlace = 15;

const pattern = /^s\d{1,16}(?:_\d{1,16}){0,15}$/;

/** `s<events>_<presence>_…_<home>`. The first part is also a pagination token of every room. */
export function formatSyncToken(token: SyncToken): string {
  const positions = tokenStreams.map((stream) => token[stream]);
  if (token.home === undefined) return `s${positions.join('_')}`;
  const unused = Array.from({ length: homePlace - positions.length }, () => 0);
  return `s${[...positions, ...unused, token.home].join('_')}`;
}

/**
 * Reads a token that this server handed out, of this or an earlier release.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function parseSyncToken(text: string): SyncToken {
  if (!pattern.test(text)) throw MatrixError.invalidParam("'since' is not a token of this server");
  const positions = text.slice(1).split('_').map(Number);
  const token = tokenOf((_, place) => positions[place] ?? 0);
  const home = positions[homePlace];
  return home === undefined ? token : { ...token, home };
}

/** The beginning of time: what an initial sync starts from. */
export const emptyToken = Object.fromEntries(tokenStreams.map((stream) => [stream, 0])) as Record<TokenStream, number> &
  SyncToken;

/** A token of one position for each stream. */
export function tokenOf(position: (stream: TokenStream, place: number) => number): SyncToken {
  // A copy has its properties already: several of these are made for each sync.
  const token = { ...emptyToken };
  for (let place = 0; place < tokenStreams.length; place++) {
    const stream = tokenStreams[place]!;
    token[stream] = position(stream, place);
  }
  return token;
}
