import { type Soon } from '@rookery/platform';
import { type Relation, relationOf, type RoomEvent } from '@rookery/events';
import { type EventStore } from '@rookery/rooms';

/**
 * The root of the thread that an event is in, or `main`: replies, and what refers to them.
 * @spec client-server-api#threaded-read-receipts
 */
export function threadOf(events: EventStore, event: RoomEvent): Soon<string> {
  const relation = relationOf(event.content);
  if (relation === undefined) return 'main';
  if (relation.type === 'm.thread') return relation.eventId;
  return threadOfTarget(events, event.roomId, relation.eventId);
}

/** A reaction to an edit of a message in a thread is as far from the root as is looked. */
const maxTargets = 2;

async function threadOfTarget(events: EventStore, roomId: string, eventId: string): Promise<string> {
  let next: string | undefined = eventId;
  for (let targets = 0; next !== undefined && targets < maxTargets; targets++) {
    const target: RoomEvent | undefined = (await events.one(next))?.event;
    const relation: Relation | undefined = target?.roomId === roomId ? relationOf(target.content) : undefined;
    if (relation?.type === 'm.thread') return relation.eventId;
    next = relation?.eventId;
  }
  return 'main';
}
