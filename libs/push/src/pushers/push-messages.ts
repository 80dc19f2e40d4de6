import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { prejoinStateOf, type RoomEvent } from '@rookery/events';
import { isJsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import type { PushAction } from '@rookery/push-rules';
import { EventStore, RoomStateReader, type StoredEvent } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import { isGone } from '../actions/event-push.js';
import { OwnReads } from '../actions/own-reads.js';
import { type NotificationRow, selectUnread } from '../actions/push-actions.query.js';
import { PushCounts } from '../actions/push-counts.js';
import { badgeMessage, eventMessage, type EventSurroundings } from './gateway-message.js';
import type { PushMessage } from './push-requests.js';
import { isWithoutBadge, type Pusher } from './pusher.js';

/** What there is to tell gateways. */
@Injectable()
export class PushMessages {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly counts: PushCounts,
    private readonly ownReads: OwnReads,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
  ) {}

  /** What a user was notified of in `(after, upTo]` and has not read. */
  async unread(
    userId: string,
    range: { readonly after: number; readonly upTo: number; readonly limit: number },
  ): Promise<NotificationRow[]> {
    await this.ownReads.settle(userId);
    return selectUnread(this.database, userId, range);
  }

  /** `undefined`: there is nothing to say of the event any more. */
  async ofEvent(pusher: Pusher, row: NotificationRow): Promise<PushMessage | undefined> {
    const stored = await this.events.one(row.event_id);
    if (stored === undefined || isGone(stored, pusher.userId)) return undefined;
    const [unread, surroundings] = await Promise.all([
      this.showsBadge(pusher) ? this.#badge(pusher.userId) : undefined,
      pusher.data['format'] === 'event_id_only' ? {} : this.#surroundings(row.room_id, stored),
    ]);
    const body = eventMessage(pusher, {
      event: stored.event,
      actions: JSON.parse(row.actions) as PushAction[],
      unread,
      withContent: this.config.get('push.include_content'),
      ...surroundings,
    });
    return { body, unread };
  }

  /** The number alone, for each of a user's pushers. */
  async ofBadge(userId: string): Promise<(pusher: Pusher) => PushMessage & { readonly unread: number }> {
    const unread = await this.#badge(userId);
    return (pusher) => ({ body: badgeMessage(pusher, unread), unread });
  }

  /** Whether a pusher is to be told numbers. */
  showsBadge(pusher: Pusher): boolean {
    return !(this.config.get('experimental_features.msc4076_enabled') && isWithoutBadge(pusher));
  }

  async #badge(userId: string): Promise<number> {
    const { messages, rooms } = await this.counts.badge(userId);
    return this.config.get('push.group_unread_count_by_room') ? rooms : messages;
  }

  async #surroundings(roomId: string, { event, outlier }: StoredEvent): Promise<EventSurroundings> {
    const { sender } = event;
    // Of a room that this server is not in, all that is known is what the invite shows.
    if (outlier) return surroundingsOf(sender, (type, stateKey, key) => shownText(event, type, stateKey, key));
    const ids = await this.state.currentIds(roomId, {
      types: [
        ['m.room.name', ''],
        ['m.room.canonical_alias', ''],
        ['m.room.member', sender],
      ],
    });
    const events = await this.events.events(ids.values());
    return surroundingsOf(
      sender,
      (type, stateKey, key) => events.get(ids.get(stateKeyOf(type, stateKey)) ?? '')?.content[key],
    );
  }
}

/** A value of a room's state. */
type StateValue = (type: string, stateKey: string, key: string) => unknown;

function surroundingsOf(sender: string, state: StateValue): EventSurroundings {
  const text: (...which: Parameters<StateValue>) => string | undefined = (...which) => {
    const value = state(...which);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const roomAlias = text('m.room.canonical_alias', '', 'alias');
  return {
    senderDisplayName: text('m.room.member', sender, 'displayname'),
    roomName: text('m.room.name', '', 'name') ?? roomAlias,
    roomAlias,
  };
}

/** A value of the state that an invite shows to its target. */
function shownText(event: RoomEvent, type: string, stateKey: string, key: string): unknown {
  const found = prejoinStateOf(event).find((one) => one['type'] === type && one['state_key'] === stateKey);
  return isJsonObject(found?.['content']) ? found['content'][key] : undefined;
}
