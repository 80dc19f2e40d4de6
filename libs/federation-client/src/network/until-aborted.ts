/**
 * The outcome of a promise, unless the signal aborts first; what then still arrives goes to `discard`.
 * @throws the signal's reason, and what the promise rejects with
 */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal, discard?: (late: T) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(signal.reason as Error);
    if (signal.aborted) late();
    else signal.addEventListener('abort', late, { once: true });
    promise.then(
      (value) => {
        signal.removeEventListener('abort', late);
        if (signal.aborted) discard?.(value);
        resolve(value);
      },
      (error: unknown) => {
        signal.removeEventListener('abort', late);
        reject(error as Error);
      },
    );
  });
}
