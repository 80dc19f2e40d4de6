/** A timer that can be stopped. */
export interface Timer {
  cancel(): void;
}

/** The only source of time, so that tests can hold it still. */
export abstract class Clock {
  /** Wall-clock time, milliseconds since the epoch. */
  abstract nowMs(): number;
  /** A clock that never jumps, for measuring; milliseconds, with fractions. */
  abstract monotonicMs(): number;
  /** Calls `fn` once after `delayMs`. The timer does not keep the process alive. */
  abstract after(delayMs: number, fn: () => void): Timer;
  /** Calls `fn` every `periodMs` until cancelled. The timer does not keep the process alive. */
  abstract every(periodMs: number, fn: () => void): Timer;

  /** Resolves after `delayMs`, or at once when the signal aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = this.after(delayMs, done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }
}

// Asked many times for each request, most of them by code that is not compiled well yet: there, going through the object
// costs half as much again.
const monotonicMs = performance.now.bind(performance);

/** The system's time. */
export class SystemClock extends Clock {
  nowMs(): number {
    return Date.now();
  }
  monotonicMs(): number {
    return monotonicMs();
  }
  after(delayMs: number, fn: () => void): Timer {
    const handle = setTimeout(fn, delayMs).unref();
    return { cancel: () => clearTimeout(handle) };
  }
  every(periodMs: number, fn: () => void): Timer {
    const handle = setInterval(fn, periodMs).unref();
    return { cancel: () => clearInterval(handle) };
  }
}
