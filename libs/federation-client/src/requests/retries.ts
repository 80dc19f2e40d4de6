import type { Config, Ids } from '@rookery/platform';
import type { FederationRequestError } from './federation-request-error.js';

/** How often a request is tried again. */
export type RetryPlan = 'none' | 'short' | 'long';

/** The numbers of a plan. */
export function retryPlan(
  config: Config,
  plan: RetryPlan,
): { readonly tries: number; readonly longestPauseMs: number } {
  switch (plan) {
    case 'none':
      return { tries: 1, longestPauseMs: 0 };
    case 'short':
      return {
        tries: 1 + config.get('federation.max_short_retries'),
        longestPauseMs: config.get('federation.max_short_retry_delay'),
      };
    case 'long':
      return {
        tries: 1 + config.get('federation.max_long_retries'),
        longestPauseMs: config.get('federation.max_long_retry_delay'),
      };
  }
}

/**
 * The pause before a request is tried again; it grows with each try, by 4 where nobody waits, and varies.
 * @param attempt how many tries there were
 * @returns milliseconds; `undefined` when another try would be no use
 */
export function pauseBefore(
  plan: RetryPlan,
  attempt: number,
  longestPauseMs: number,
  failure: FederationRequestError,
  ids: Ids,
): number | undefined {
  const { reason, status, retryAfterMs } = failure;
  const hopeful =
    status === undefined
      ? reason === 'unreachable' || (reason === 'timeout' && plan === 'long')
      : status === 429 || status >= 500;
  if (!hopeful) return undefined;
  const plannedMs = plan === 'long' ? 1000 * 4 ** attempt : 250 * 2 ** attempt;
  const pauseMs = Math.min(plannedMs, longestPauseMs) * (0.8 + (0.6 * ids.integer(1001)) / 1000);
  if (retryAfterMs === undefined) return pauseMs;
  // Whoever wants more time than anybody here may take is not asked again.
  return retryAfterMs > longestPauseMs ? undefined : Math.max(pauseMs, retryAfterMs);
}
