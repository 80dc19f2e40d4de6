import { type InboundRequest, type InferQuery, param, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { claimedType, cleanName, type IncomingFile } from '../uploads/incoming-file.js';

const longestName = 1_000;

/** What an upload says beside its headers. */
export const uploadQuery = queryOf({ filename: param.string('The name of the file.') });
/** What {@link uploadQuery} reads. */
export type UploadQuery = InferQuery<typeof uploadQuery>;

/**
 * The file in an upload's request.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function incomingFile(request: InboundRequest, query: UploadQuery): IncomingFile {
  const uploadName = cleanName(query.filename);
  if (uploadName !== undefined && uploadName.length > longestName)
    throw MatrixError.invalidParam(`'filename' is longer than ${longestName} characters`);
  const length = request.headers['content-length'];
  const sizeBytes = typeof length === 'string' && /^\d{1,15}$/.test(length) ? Number(length) : undefined;
  const type = request.headers['content-type'];
  return {
    body: request.stream,
    sizeBytes,
    mediaType: claimedType(typeof type === 'string' ? type : undefined),
    uploadName,
  };
}
