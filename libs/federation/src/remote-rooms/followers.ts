import type { RoomEvent } from '@rookery/events';

/**
 * Among events that are stored, one whose state is that before an event of the past: nothing lies between the two but events of
 * the same page, none of which is state, and before them nothing but what that event follows upon.
 * @param root follows upon what is not known
 * @param page all that came with it
 * @param followers stored events that name some of these
 * @returns `undefined` where the state is not known so
 */
export function followerWithStateOf(
  root: RoomEvent,
  page: ReadonlyMap<string, RoomEvent>,
  followers: readonly RoomEvent[],
): RoomEvent | undefined {
  if (root.stateKey !== undefined) return undefined;
  return followers.find((follower) => follower.stateKey === undefined && leadsOnlyTo(root, page, follower));
}

function leadsOnlyTo(root: RoomEvent, page: ReadonlyMap<string, RoomEvent>, follower: RoomEvent): boolean {
  const seen = new Set<string>();
  const pending = [...follower.prevEventIds];
  if (pending.length === 0) return false;
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    if (seen.has(id)) continue;
    seen.add(id);
    const event = page.get(id);
    if (event?.stateKey !== undefined || event === undefined) return false;
    if (id === root.eventId) continue;
    if (event.prevEventIds.length === 0) return false;
    pending.push(...event.prevEventIds);
  }
  return true;
}
