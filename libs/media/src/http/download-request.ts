import { type InboundRequest, param } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import type { DownloadRequest } from '../downloads/downloads.service.js';

const defaultTimeoutMs = 20_000;
const longestTimeoutMs = 60_000;

/** How a file is asked for with a token. */
export const downloadParams = {
  timeout_ms: param.integer('How long to wait for a file that is still to come, milliseconds.', {
    max: longestTimeoutMs,
    clamp: true,
    otherwise: defaultTimeoutMs,
  }),
  admin_unsafely_bypass_quarantine: param.boolean(
    'Whether an administrator gets the file though it is in quarantine.',
    {
      otherwise: false,
    },
  ),
};
/** How a file is asked for without one. */
export const openDownloadParams = {
  timeout_ms: downloadParams.timeout_ms,
  allow_remote: param.boolean('Whether other servers are asked for files of theirs.'),
};

/** What both read. */
export interface DownloadParams {
  readonly timeout_ms: number;
  readonly admin_unsafely_bypass_quarantine?: boolean;
  readonly allow_remote?: boolean | undefined;
}

/**
 * What a request for a file asks for.
 * @param requester `undefined` on the endpoints that take no token
 */
export function downloadRequest(
  request: InboundRequest,
  query: DownloadParams,
  server: string,
  mediaId: string,
  requester: Requester | undefined,
): DownloadRequest {
  return {
    server,
    mediaId,
    timeoutMs: query.timeout_ms,
    authenticated: requester !== undefined,
    allowRemote: requester === undefined ? query.allow_remote : undefined,
    ip: request.ip,
    userId: requester?.userId,
    // Made only for those who have to wait.
    get signal() {
      return request.signal;
    },
    evenQuarantined: requester?.isAdmin === true && query.admin_unsafely_bypass_quarantine === true,
  };
}
