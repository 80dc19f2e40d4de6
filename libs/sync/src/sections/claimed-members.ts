import type { EventStore, PartialRooms, StoredEvent } from '@rookery/rooms';

/** A user in a room, as {@link claimedMembers} names them. */
export const claimKey = (roomId: string, userId: string): string => `${roomId} ${userId}`;

/**
 * Who speaks in rooms of which not all members are known (MSC3902): by the auth events of what they say. Costs no query while
 * there is no such room.
 * @param said what is shown of rooms
 * @returns ids of member events, by {@link claimKey}
 */
export async function claimedMembers(
  partial: PartialRooms,
  events: EventStore,
  said: readonly StoredEvent[],
): Promise<Map<string, string>> {
  const claimed = new Map<string, string>();
  await partial.heard();
  if (!partial.hasAny) return claimed;
  const open = said.filter(({ event }) => partial.has(event.roomId));
  const auth = await events.events(new Set(open.flatMap(({ event }) => event.authEventIds)));
  for (const { event } of open) {
    for (const id of event.authEventIds) {
      const { type, stateKey, roomId } = auth.get(id) ?? {};
      if (type === 'm.room.member' && stateKey === event.sender && roomId === event.roomId)
        claimed.set(claimKey(roomId, stateKey), id);
    }
  }
  return claimed;
}
