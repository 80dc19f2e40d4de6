import type { Readable } from 'node:stream';

/** Why an answer is waited for no longer: it took too long as a whole, or nothing was said for too long, or nobody wants it. */
type GivenUp = 'timeout' | 'silence' | 'unwanted';

/** How long an answer is waited for, from the moment at which this is made. */
export interface PatienceLimits {
  /** For all of it, milliseconds. */
  readonly timeoutMs: number;
  /** How long the other server may say nothing once something is wanted of it, milliseconds. */
  readonly silenceMs: number;
  /** Aborts when it is not wanted any more. */
  readonly wanted?: AbortSignal | undefined;
}

/** Watches over a server that may take long. Must be ended. */
export class Patience {
  readonly #controller = new AbortController();
  readonly #timeout: NodeJS.Timeout;
  #silence: NodeJS.Timeout | undefined;
  #givenUp: GivenUp | undefined;

  constructor(readonly limits: PatienceLimits) {
    this.#timeout = setTimeout(() => this.#giveUp('timeout'), limits.timeoutMs);
    if (limits.wanted?.aborted) this.#unwanted();
    else limits.wanted?.addEventListener('abort', this.#unwanted, { once: true });
  }

  /** Aborts when the answer is waited for no longer. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why it is waited for no longer; `undefined` while it is. */
  get givenUp(): GivenUp | undefined {
    return this.#givenUp;
  }

  /** Something is wanted of the server from now on. */
  begin(): void {
    const { silenceMs, timeoutMs } = this.limits;
    if (silenceMs < timeoutMs) this.#silence = setTimeout(() => this.#giveUp('silence'), silenceMs);
  }

  /** It said something. */
  readonly heard = (): void => void this.#silence?.refresh();

  /** Every piece of an answer counts, and its end ends the watch. */
  follow(answer: Readable): void {
    this.heard();
    answer.on('data', this.heard);
    answer.once('close', () => this.end());
  }

  /** Nothing is wanted any more. */
  end(): void {
    clearTimeout(this.#timeout);
    clearTimeout(this.#silence);
    this.limits.wanted?.removeEventListener('abort', this.#unwanted);
  }

  readonly #unwanted = (): void => this.#giveUp('unwanted');

  #giveUp(cause: GivenUp): void {
    if (this.#givenUp !== undefined) return;
    this.#givenUp = cause;
    this.end();
    this.#controller.abort();
  }
}
