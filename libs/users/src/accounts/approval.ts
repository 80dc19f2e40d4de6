import { MatrixError } from '@rookery/matrix-types';
import type { Config } from '@rookery/platform';

/** Whether new accounts wait for an administrator (MSC3866). */
export const needsApproval = (config: Config): boolean =>
  config.get('experimental_features.msc3866')?.require_approval_for_new_accounts ?? false;

/**
 * Refuses an account that waits for an administrator.
 * @throws MatrixError 403 `ORG.MATRIX.MSC3866_USER_AWAITING_APPROVAL`
 */
export function assertApproved(config: Config, account: { readonly approved: boolean }): void {
  if (account.approved || !needsApproval(config)) return;
  throw MatrixError.awaitingApproval();
}
