import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Destinations } from '@rookery/federation-client';
import { atEase, BackgroundTasks, Clock, Lifecycle } from '@rookery/platform';
import { strangersBehind } from './sender.query.js';

const lookEveryMs = 3_600_000;
const periodMs = 86_400_000;
/** How long it is kept that a server could not be reached to which nothing was ever sent, milliseconds. */
const keptMs = 30 * 86_400_000;
const atOnce = 500;

/** Forgets servers with which this one never shared anything: whoever asks for a file of a made-up one has it written down. */
@Injectable()
export class Strangers {
  #dueMs = 0;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly destinations: Destinations,
    lifecycle: Lifecycle,
    tasks: BackgroundTasks,
  ) {
    const name = 'forget_strange_servers';
    const run = (signal: AbortSignal): Promise<void> => this.#forgetWhenDue(signal);
    const job = tasks.add({ name, role: 'writer', everyMs: lookEveryMs, run });
    lifecycle.on('streams', { name, start: () => job.start(), stop: () => job.stop() });
  }

  /** Not only once a day: a server that is started anew each night would never come to it. */
  async #forgetWhenDue(signal: AbortSignal): Promise<void> {
    if (this.clock.nowMs() < this.#dueMs) return;
    this.#dueMs = this.clock.nowMs() + periodMs;
    await this.forget(signal);
  }

  /** Does so once, some at a time. */
  async forget(signal?: AbortSignal): Promise<void> {
    const beforeTs = this.clock.nowMs() - keptMs;
    let after: string | undefined = '';
    while (after !== undefined && signal?.aborted !== true) {
      const from: string = after;
      after = await atEase(this.clock, signal, () => this.#forgetSome(from, beforeTs));
    }
  }

  /** @returns the last one that was forgotten, where there may be more behind it */
  async #forgetSome(after: string, beforeTs: number): Promise<string | undefined> {
    const found = await strangersBehind(this.database, after, beforeTs, atOnce);
    if (found.length > 0) await this.destinations.forget(found, beforeTs);
    return found.length < atOnce ? undefined : found.at(-1);
  }
}
