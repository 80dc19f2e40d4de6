import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../clock.js';

/** Longest pause after a step, milliseconds. */
const longestPauseMs = 100;
/** What takes less needs no pause but a turn for others, milliseconds. */
const shortMs = 1;

/**
 * Does a step of long work for which nobody waits, and then rests for as long as it took, a tenth of a second at most: such work takes
 * half of the time, and whoever is waited for the other half.
 * @param signal ends the rest, where nobody has to be spared any more: the server stops
 */
export async function atEase<T>(clock: Clock, signal: AbortSignal | undefined, step: () => Promise<T>): Promise<T> {
  const beganMs = clock.monotonicMs();
  const result = await step();
  const tookMs = clock.monotonicMs() - beganMs;
  await (tookMs < shortMs ? nextTurn() : clock.sleep(Math.min(tookMs, longestPauseMs), signal));
  return result;
}
