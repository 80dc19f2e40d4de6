/** How work on many items goes on. */
export interface EachOptions {
  /** Asked before each item; once it is false, no further one is begun. */
  readonly while?: (() => boolean) | undefined;
}

/**
 * Works on items in order, at most `limit` at a time. Resolves when all are done.
 * @throws what the work of the first one that fails throws; no further item is begun then
 */
export async function eachLimit<T>(
  items: Iterable<T>,
  limit: number,
  work: (item: T) => Promise<void>,
  options: EachOptions = {},
): Promise<void> {
  // Shared: whoever is free takes the next one.
  const rest = items[Symbol.iterator]();
  let hasFailed = false;
  const worker = async (): Promise<void> => {
    while (!hasFailed && options.while?.() !== false) {
      const next = rest.next();
      if (next.done) return;
      try {
        await work(next.value);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: limit }, worker));
}
