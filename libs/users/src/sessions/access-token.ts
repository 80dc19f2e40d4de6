import { MatrixError } from '@rookery/matrix-types';

type Values = Readonly<Record<string, string | readonly string[] | undefined>>;

/** What may carry an access token; which header and which parameter it is, is known here alone. */
export interface TokenCarrier {
  /** Names in lower case. */
  readonly headers: Values;
  readonly query: Values;
}

/**
 * The access token of a request: the `Authorization` header, else the query parameter `access_token`.
 * @spec client-server-api#using-access-tokens
 * @throws MatrixError 401 `M_MISSING_TOKEN` when the header is of another kind or the parameter is repeated
 */
export function accessTokenOf(request: TokenCarrier): { token: string } | undefined {
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
