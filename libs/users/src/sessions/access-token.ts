import type { InboundRequest } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';

/**
 * The access token of a request: the `Authorization` header, else the query parameter `access_token`.
 * @spec client-server-api#using-access-tokens
 * @throws MatrixError 401 `M_MISSING_TOKEN` when the header is of another kind or the parameter is repeated
 */
export function accessTokenOf(request: Pick<InboundRequest, 'headers' | 'query'>): { token: string } | undefined {
  const header = request.headers['authorization'];
  if (header !== undefined) {
    const match = typeof header === 'string' ? /^Bearer +([^\s]+) *$/i.exec(header) : null;
    if (!match) throw MatrixError.missingToken('The Authorization header holds no bearer token');
    return { token: match[1]! };
  }
  const parameter = request.query['access_token'];
  if (parameter === undefined || parameter === '') return undefined;
  if (typeof parameter !== 'string') throw MatrixError.missingToken('There is more than one access token');
  return { token: parameter };
}
