import type { Lifecycle, Logger } from '@rookery/platform';

/** Tells other servers of news that are none later: where it does not work, the log says so. */
export class BestEffort {
  constructor(
    private readonly lifecycle: Lifecycle,
    private readonly logger: Logger,
  ) {}

  /** @param what the news, for the log */
  try(what: string, work: () => Promise<void>): void {
    if (this.lifecycle.stopping.aborted) return;
    work().catch((error: unknown) => {
      if (!this.lifecycle.stopping.aborted)
        this.logger.warn('Other servers could not be told of news', { what, err: error });
    });
  }
}
