/** Between two checks, milliseconds: what takes long is asked for less often, since a check takes time from what it waits for. */
const [shortestPauseMs, longestPauseMs, partOfWait] = [10, 100, 0.05];

/**
 * Waits until a check gives something other than `undefined` or `false`, and returns it. The limit is wide: a slow machine is no
 * reason to fail, and what happens at once costs no time.
 * @throws Error when it did not happen in time; names the check
 */
export async function eventually<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = 90_000,
): Promise<T> {
  const beganMs = performance.now();
  for (;;) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    const waitedMs = performance.now() - beganMs;
    if (waitedMs > limitMs) throw new Error(`It did not happen in time: ${check.toString()}`);
    const pauseMs = Math.min(Math.max(waitedMs * partOfWait, shortestPauseMs), longestPauseMs);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
