import { Injectable } from '@nestjs/common';
import { Logger } from '@rookery/platform';
import type { HookPoint } from './hook-point.js';

/** Runs the best-effort phase of hooks and logs what fails. */
@Injectable()
export class HookReporter {
  constructor(private readonly logger: Logger) {}

  /** @returns whether every hook did its work */
  afterCommit<Event>(point: HookPoint<Event>, event: Event): Promise<boolean> {
    return point.afterCommit(event, (hook, error) =>
      this.logger.error('A hook failed after the change was made', { hook, err: error }),
    );
  }
}
