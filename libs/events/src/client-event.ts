import type { ClientEvent, UnsignedData } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';

/**
 * The event as clients see it, without what belongs to federation. The target of a redaction stands both at the top
 * level and in `content`, whatever the room version, so that clients of every age find it.
 * @param unsigned what this reader gets in addition
 * @param withoutRoomId the room is told elsewhere. Left out from the start, as an object that loses a field is several
 *   times as large as one that never had it
 * @spec client-server-api#room-event-format, client-server-api#mroomredaction
 */
export function clientEventView(event: RoomEvent, unsigned?: UnsignedData, withoutRoomId = false): ClientEvent {
  const { eventId: event_id, type, sender, originServerTs: origin_server_ts, content } = event;
  const view: ClientEvent = withoutRoomId
    ? { event_id, type, sender, origin_server_ts, content }
    : { event_id, room_id: event.roomId, type, sender, origin_server_ts, content };
  if (event.stateKey !== undefined) view.state_key = event.stateKey;
  if (event.redacts !== undefined) {
    view.redacts = event.redacts;
    if (!event.rules.redactsInContent) view.content = { ...event.content, redacts: event.redacts };
  }
  if (unsigned !== undefined) view.unsigned = unsigned;
  return view;
}
