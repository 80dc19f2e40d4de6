import { MatrixError } from '@rookery/matrix-types';
import type { Config } from '@rookery/platform';

/**
 * Whether the settings let an address be used here (`allowed_local_3pids`).
 * @throws MatrixError 403 `M_THREEPID_DENIED`
 */
export function checkAllowedThreepid(config: Config, medium: string, address: string): void {
  const rules = config.get('allowed_local_3pids');
  if (rules === undefined) return;
  if (!rules.some((rule) => rule.medium === medium && matches(rule.pattern, address))) {
    throw MatrixError.threepidDenied();
  }
}

/** Anchored at the front only, as the setting is read elsewhere. */
function matches(pattern: { readonly source: string } | string, address: string): boolean {
  return new RegExp(`^(?:${typeof pattern === 'string' ? pattern : pattern.source})`).test(address);
}
