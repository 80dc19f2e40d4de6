import type { ClientEvent, UnsignedData } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';

/**
 * The event as clients see it, without what belongs to federation. The target of a redaction stands both at the top
 * level and in `content`, whatever the room version, so that clients of every age find it.
 * @param unsigned what this reader gets in addition
 * @spec client-server-api#room-event-format, client-server-api#mroomredaction
 */
export function clientEventView(event: RoomEvent, unsigned?: UnsignedData): ClientEvent {
  const view: ClientEvent = {
    event_id: event.eventId,
    room_id: event.roomId,
    type: event.type,
    sender: event.sender,
    origin_server_ts: event.originServerTs,
    content: event.content,
  };
  if (event.stateKey !== undefined) view.state_key = event.stateKey;
  if (event.redacts !== undefined) {
    view.redacts = event.redacts;
    if (!event.rules.redactsInContent) view.content = { ...event.content, redacts: event.redacts };
  }
  if (unsigned !== undefined) view.unsigned = unsigned;
  return view;
}
