const pauseMs = 10;

/**
 * Waits until a check gives something other than `undefined` or `false`, and returns it. The limit is wide: a slow machine is no
 * reason to fail, and what happens at once costs no time.
 * @throws Error when it did not happen in time; names the check
 */
export async function eventually<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = 90_000,
): Promise<T> {
  const endMs = performance.now() + limitMs;
  for (;;) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > endMs) throw new Error(`It did not happen in time: ${check.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
