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
  /** CPU time that this thread has used, milliseconds: it stands still while the thread waits, for whatever that is. */
  threadCpuMs(): number {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  }
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

/** The longest time the system's timers can count; what is longer would be over at once. */
const longestTimerMs = 2 ** 31 - 1;

/** The system's time. */
export class SystemClock extends Clock {
  nowMs(): number {
    return Date.now();
  }
  monotonicMs(): number {
    return monotonicMs();
  }
  after(delayMs: number, fn: () => void): Timer {
    if (delayMs > longestTimerMs) return this.#afterLong(delayMs, fn);
    const handle = setTimeout(fn, delayMs).unref();
    return { cancel: () => clearTimeout(handle) };
  }
  every(periodMs: number, fn: () => void): Timer {
    if (periodMs > longestTimerMs) return this.#everyLong(periodMs, fn);
    const handle = setInterval(fn, periodMs).unref();
    return { cancel: () => clearInterval(handle) };
  }

  #afterLong(delayMs: number, fn: () => void): Timer {
    let timer: Timer;
    const wait = (leftMs: number): void => {
      const nextMs = Math.min(leftMs, longestTimerMs);
      timer = this.after(nextMs, leftMs > nextMs ? () => wait(leftMs - nextMs) : fn);
    };
    wait(delayMs);
    return { cancel: () => timer.cancel() };
  }

  #everyLong(periodMs: number, fn: () => void): Timer {
    let timer: Timer;
    const wait = (): void => {
      timer = this.after(periodMs, () => {
        wait();
        fn();
      });
    };
    wait();
    return { cancel: () => timer.cancel() };
  }
}
