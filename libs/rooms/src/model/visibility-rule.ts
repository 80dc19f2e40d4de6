import type { HistoryVisibility } from '@rookery/events';
import type { Membership } from '@rookery/matrix-types';

const rank: Readonly<Record<HistoryVisibility, number>> = { joined: 0, invited: 1, shared: 2, world_readable: 3 };

/** The one that shows more. A change of the setting itself is shown by either. */
export const moreOpen = (a: HistoryVisibility, b: HistoryVisibility): HistoryVisibility => (rank[a] >= rank[b] ? a : b);

/**
 * Whether history visibility lets somebody see an event.
 * @param membership of the reader when the event was sent
 * @param wasInLater the reader was in the room at some time after this server got the event; where the event's own state says
 * otherwise it is of a fork, whose server had not heard of the reader
 */
export function maySee(
  visibility: HistoryVisibility,
  membership: Membership | undefined,
  wasInLater: boolean,
): boolean {
  if (visibility === 'world_readable' || membership === 'join') return true;
  if (visibility === 'shared') return wasInLater;
  return visibility === 'invited' && membership === 'invite';
}
