import type { CallbackName } from '@rookery/module-api';
import type { Clock, Logger } from '@rookery/platform';
import type { CallOutcome } from './figures.js';

/** What the host needs of the server. */
export interface HostServices {
  readonly clock: Clock;
  readonly log: Logger;
  /** Told of every finished call, for metrics. */
  readonly observe?: (module: string, callback: CallbackName, outcome: CallOutcome, durationMs: number) => void;
}
