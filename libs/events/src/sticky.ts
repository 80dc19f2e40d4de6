import { isJsonObject } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';

/** Where an event says that it is sticky (MSC4354). */
export const stickyKey = 'msc4354_sticky';

/** No event is sticky for longer, whatever it says; milliseconds. */
export const longestStickyMs = 3_600_000;

/** For how long an event is sticky from its start on, milliseconds; `undefined` for one that is not (MSC4354). */
export function stickyDurationOf(event: RoomEvent): number | undefined {
  const sticky = event.pdu[stickyKey];
  if (!isJsonObject(sticky)) return undefined;
  const { duration_ms: durationMs } = sticky;
  if (typeof durationMs !== 'number' || !Number.isSafeInteger(durationMs) || durationMs < 0) return undefined;
  return Math.min(durationMs, longestStickyMs);
}
