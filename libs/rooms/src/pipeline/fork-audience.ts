import { isMembership } from '@rookery/matrix-types';
import { historyVisibilityIn } from '@rookery/events';
import { stateKeyOf } from '@rookery/state-res';
import { maySee, moreOpen } from '../model/visibility-rule.js';
import type { StagedEvent } from '../room/staged-event.js';
import type { WorkingRoom } from '../room/working-room.js';
import type { EventStore } from '../store/event-store.js';

const visibilityKey = stateKeyOf('m.room.history_visibility', '');

/**
 * Who of this server is in the room after a batch and may not see one of its events: such an event is of a fork whose server had
 * not heard of them, in a room that shows history to those who were there only. By event id; events that all may see are absent.
 * @spec client-server-api#room-history-visibility
 */
export async function hiddenFrom(
  room: WorkingRoom,
  events: EventStore,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const hidden = new Map<string, ReadonlySet<string>>();
  for (const staged of room.staged) {
    if (staged.fork === undefined) continue;
    const users = await audienceLeftOut(staged, staged.fork, room, events);
    if (users.size > 0) hidden.set(staged.event.eventId, users);
  }
  return hidden;
}

async function audienceLeftOut(
  { event, replacesState }: StagedEvent,
  before: NonNullable<StagedEvent['fork']>,
  room: WorkingRoom,
  events: EventStore,
): Promise<ReadonlySet<string>> {
  const load = (ids: readonly string[]) => events.events(ids, room.stagedById);
  const settingId = before.idAt(visibilityKey);
  const needed = [settingId, replacesState].filter((id) => id !== undefined);
  const settings = await load(needed);
  let visibility = historyVisibilityIn(settings.get(settingId ?? '')?.content);
  if (event.type === 'm.room.history_visibility' && event.stateKey === '')
    visibility = moreOpen(visibility, historyVisibilityIn(event.content));
  // Whoever is in the room now was in it later than the event.
  if (maySee(visibility, undefined, true)) return new Set();
  const differing = new Map<string, string | undefined>();
  for (const userId of room.base.localMembers) {
    const key = stateKeyOf('m.room.member', userId);
    const then = before.idAt(key);
    const isOwn = event.type === 'm.room.member' && event.stateKey === userId;
    if (!isOwn && then !== room.idAt(key)) differing.set(userId, then);
  }
  const members = await load([...differing.values()].filter((id) => id !== undefined));
  const leftOut = new Set<string>();
  for (const [userId, then] of differing) {
    const membership = members.get(then ?? '')?.content['membership'];
    if (!maySee(visibility, isMembership(membership) ? membership : 'leave', true)) leftOut.add(userId);
  }
  return leftOut;
}
