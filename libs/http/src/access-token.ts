import { MatrixError } from '@rookery/matrix-types';
import type { InboundRequest } from './access.js';
import { queryString } from './query-params.js';

/** No token of ours or of an application service is longer. */
const maxTokenLength = 4096;

/**
 * The access token of a request: from `Authorization: Bearer`, else from the query's `access_token`.
 * @returns `undefined` when there is none
 * @throws MatrixError 401 `M_MISSING_TOKEN` for a malformed header, 401 `M_UNKNOWN_TOKEN` for an impossible token,
 *   400 `M_INVALID_PARAM` for a repeated query parameter
 * @spec client-server-api#using-access-tokens
 */
export function accessTokenOf(request: Pick<InboundRequest, 'headers' | 'query'>): string | undefined {
  const header = request.headers['authorization'];
  let token: string | undefined;
  if (typeof header === 'string') {
    token = /^Bearer +([^\s]+) *$/i.exec(header)?.[1];
    if (token === undefined)
      throw new MatrixError(401, 'M_MISSING_TOKEN', 'The Authorization header holds no bearer token');
  } else token = queryString(request, 'access_token');
  if (token === undefined || token === '') return undefined;
  if (token.length > maxTokenLength) throw new MatrixError(401, 'M_UNKNOWN_TOKEN', 'Unknown access token');
  return token;
}
