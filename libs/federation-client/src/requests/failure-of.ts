import { DiscoveryError } from '../discovery/server-discovery.js';
import { DialError } from '../network/dial-error.js';
import { FederationRequestError } from './federation-request-error.js';

/** Any error on the way to an answer, in terms of federation. */
export function failureOf(destination: string, error: unknown): FederationRequestError {
  if (error instanceof FederationRequestError) return error;
  if (error instanceof DialError)
    return new FederationRequestError(destination, error.reason, `${destination}: ${error.message}`, { cause: error });
  const text = error instanceof Error ? error.message : String(error);
  const message = error instanceof DiscoveryError ? text : `${destination}: the connection failed: ${text}`;
  return new FederationRequestError(destination, 'unreachable', message, { cause: error });
}
