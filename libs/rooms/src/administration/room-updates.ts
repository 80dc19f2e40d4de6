import type { BackgroundUpdate } from '@rookery/database';
import { eventResigning, type ResigningParts } from './event-resigning.update.js';
import { roomStatsUpdate } from './room-stats.update.js';

/** The background updates of rooms that administrators start by hand. */
export const roomUpdates = (parts: ResigningParts): readonly BackgroundUpdate[] => [
  roomStatsUpdate(parts.events),
  eventResigning(parts),
];
