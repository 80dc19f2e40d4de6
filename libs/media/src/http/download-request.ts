import { type InboundRequest, queryBoolean, queryInteger } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import type { DownloadRequest } from '../downloads/downloads.service.js';

const defaultTimeoutMs = 20_000;
const longestTimeoutMs = 60_000;

/**
 * What a request for a file asks for.
 * @param requester `undefined` on the endpoints that take no token
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function downloadRequest(
  request: InboundRequest,
  server: string,
  mediaId: string,
  requester: Requester | undefined,
): DownloadRequest {
  const timeoutMs = queryInteger(request, 'timeout_ms', { max: longestTimeoutMs, clamp: true }) ?? defaultTimeoutMs;
  const bypass = requester?.isAdmin === true && queryBoolean(request, 'admin_unsafely_bypass_quarantine') === true;
  return {
    server,
    mediaId,
    timeoutMs,
    authenticated: requester !== undefined,
    allowRemote: requester === undefined ? queryBoolean(request, 'allow_remote') : undefined,
    ip: request.ip,
    // Made only for those who have to wait.
    get signal() {
      return request.signal;
    },
    evenQuarantined: bypass,
  };
}
