import { MatrixError } from '@rookery/matrix-types';
import type { Config } from '@rookery/platform';

/**
 * Refuses while the operator has closed the server (`hs_disabled`).
 * @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED`
 */
export function assertServerOpen(config: Config): void {
  if (!config.get('hs_disabled')) return;
  const message = config.get('hs_disabled_message');
  throw resourceLimit(config, 'hs_disabled', message === '' ? 'This server is closed' : message);
}

/** 403 `M_RESOURCE_LIMIT_EXCEEDED`, with whom to ask. @param type what `limit_type` says */
export function resourceLimit(
  config: Config,
  type: 'hs_disabled' | 'monthly_active_user',
  message: string,
): MatrixError {
  const contact = config.get('admin_contact');
  return MatrixError.resourceLimitExceeded(message, {
    limit_type: type,
    ...(contact === undefined ? {} : { admin_contact: contact }),
  });
}
