import { InvalidEventError, parsePdu, type RoomEvent, soundForm } from '@rookery/events';
import type { KeyRing } from '@rookery/federation-client';

/** Events of a room that others may show with an invite or a knock. */
export const maxShown = 100;

/** Whether an event makes its room. */
export const isCreate = ({ type, stateKey }: RoomEvent): boolean => type === 'm.room.create' && stateKey === '';

/**
 * What is shown of a room, as events of it.
 * @param onBad told why an entry is none, as the end of a sentence; it is left out unless this throws
 */
export function shownEvents(
  { roomId, rules }: Pick<RoomEvent, 'roomId' | 'rules'>,
  shown: readonly unknown[],
  onBad: (reason: string) => void,
): RoomEvent[] {
  return shown.flatMap((pdu) => {
    try {
      return [soundForm(parsePdu(pdu, rules, { roomId }))];
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      onBad(`what is no event of the room: ${error.reason}`);
      return [];
    }
  });
}

/**
 * Those of some events of a room whose id is the hash of its create event that prove themselves: with the signatures of their servers.
 * Those of servers whose keys cannot be had are left out.
 * @param origin the server that shows them
 * @param onBad told why an event proves to be none, as the end of a sentence; it is left out unless this throws
 */
export async function provenAmong(
  keys: KeyRing,
  origin: string,
  events: readonly RoomEvent[],
  onBad: (reason: string) => void,
): Promise<RoomEvent[]> {
  const verdicts = await keys.verifyEvents(events, origin);
  return events.filter((event, index) => {
    const verdict = verdicts[index]!;
    if (verdict.valid) return true;
    if (verdict.reason !== 'wrong' && verdict.reason !== 'missing') return isCreate(event); // The room's id vouches for it.
    onBad('an event without the right signatures');
    return false;
  });
}
