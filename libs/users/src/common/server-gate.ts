import { MatrixError } from '@rookery/matrix-types';
import type { Config } from '@rookery/platform';

/**
 * Refuses while the operator has closed the server (`hs_disabled`).
 * @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED`
 */
export function assertServerOpen(config: Config): void {
  if (!config.get('hs_disabled')) return;
  const message = config.get('hs_disabled_message');
  const contact = config.get('admin_contact');
  throw new MatrixError(403, 'M_RESOURCE_LIMIT_EXCEEDED', message === '' ? 'This server is closed' : message, {
    limit_type: 'hs_disabled',
    ...(contact === undefined ? {} : { admin_contact: contact }),
  });
}
