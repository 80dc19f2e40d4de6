import type { Config } from '@rookery/platform';

/** What one event of a state takes on average, with all that stands around it, bytes: more than those of large rooms do. */
const bytesPerEvent = 1_074;
/** Of a small room they may be as large as any. */
const leastBytes = 32 * 1_048_576;

/** How much another server may tell as the state of a room. */
export interface StateLimits {
  /** Events of the state, and as many of its auth chain. */
  readonly maxEvents: number;
  /** All of it as it is told, bytes. */
  readonly maxBytes: number;
}

/** As `federation.max_state_events` says. */
export function stateLimitsOf(config: Config): StateLimits {
  const maxEvents = config.get('federation.max_state_events');
  return { maxEvents, maxBytes: Math.max(leastBytes, maxEvents * bytesPerEvent) };
}
