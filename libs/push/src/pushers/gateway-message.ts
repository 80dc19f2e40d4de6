import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { outcomeOf, type PushAction } from '@rookery/push-rules';
import type { Pusher } from './pusher.js';

/** What is said about an event beside the event itself. */
export interface EventSurroundings {
  readonly senderDisplayName?: string | undefined;
  readonly roomName?: string | undefined;
  readonly roomAlias?: string | undefined;
}

/** A notification for one pusher. */
export interface GatewayEvent extends EventSurroundings {
  readonly event: RoomEvent;
  readonly actions: readonly PushAction[];
  /** Unread notifications, or rooms with any; absent for a client that wants no number (MSC4076). */
  readonly unread: number | undefined;
  /** Whether gateways may see what was said. */
  readonly withContent: boolean;
}

function device(pusher: Pusher, actions: readonly PushAction[] | undefined): JsonObject {
  const { url: _, ...data } = pusher.data;
  const result: JsonObject = {
    app_id: pusher.appId,
    pushkey: pusher.pushkey,
    pushkey_ts: Math.floor(pusher.ts / 1_000),
    data,
  };
  if (actions !== undefined) result['tweaks'] = tweaksOf(actions);
  return result;
}

/** A tweak `highlight` without a value is true. */
function tweaksOf(actions: readonly PushAction[]): JsonObject {
  return Object.fromEntries(
    actions.flatMap((action) => (typeof action === 'string' ? [] : [[action.set_tweak, action.value ?? true]])),
  );
}

/**
 * The body for a push gateway about an event, whole or with its id only, as the pusher wants it.
 * @spec push-gateway-api#post_matrixpushv1notify
 */
export function eventMessage(pusher: Pusher, notification: GatewayEvent): JsonObject {
  const { event, actions, unread } = notification;
  const { highlight, sound } = outcomeOf(actions);
  const isUrgent = highlight || sound !== undefined || event.type === 'm.room.encrypted';
  const short: JsonObject = {
    event_id: event.eventId,
    room_id: event.roomId,
    ...(unread !== undefined && { counts: { unread } }),
    prio: isUrgent ? 'high' : 'low',
    devices: [device(pusher, pusher.data['format'] === 'event_id_only' ? undefined : actions)],
  };
  if (pusher.data['format'] === 'event_id_only') return { notification: short };
  const { senderDisplayName, roomName, roomAlias } = notification;
  return {
    notification: {
      ...short,
      type: event.type,
      sender: event.sender,
      ...(senderDisplayName !== undefined && { sender_display_name: senderDisplayName }),
      ...(roomName !== undefined && { room_name: roomName }),
      ...(roomAlias !== undefined && { room_alias: roomAlias }),
      ...(event.type === 'm.room.member' && { user_is_target: event.stateKey === pusher.userId }),
      ...(notification.withContent && { content: event.content }),
    },
  };
}

/** The body that tells a gateway the number of unread notifications, after some were read. */
export function badgeMessage(pusher: Pusher, unread: number): JsonObject {
  return { notification: { counts: { unread }, devices: [device(pusher, undefined)] } };
}
