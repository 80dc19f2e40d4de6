import type { RoomEvent } from '@rookery/events';
import { type EventStore, relationOf } from '@rookery/rooms';
import type { Soon } from '../soon.js';

/**
 * The root of the thread that an event is in, or `main`: replies, and what refers to them.
 * @spec client-server-api#threaded-read-receipts
 */
export function threadOf(events: EventStore, event: RoomEvent): Soon<string> {
  const relation = relationOf(event.content);
  if (relation === undefined) return 'main';
  if (relation.type === 'm.thread') return relation.eventId;
  return events.one(relation.eventId).then((target) => {
    const next = target?.event.roomId === event.roomId ? relationOf(target.event.content) : undefined;
    return next?.type === 'm.thread' ? next.eventId : 'main';
  });
}
