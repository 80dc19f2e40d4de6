import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { RoomActivity } from './caches/room-activity.js';
import type { SyncToken } from './request/sync-token.js';
import { holdsText, WrittenRooms } from './request/written-rooms.js';
import { AccountDataSection } from './sections/account-data.js';
import { DevicesSection } from './sections/devices.js';
import { ProfilesSection } from './sections/profiles.js';
import { PresenceSection } from './sections/presence.js';
import { RoomsSection } from './sections/rooms.js';
import { RoomsWithNews } from './sections/rooms-with-news.js';
import type { SyncContext } from './sync-context.js';

/** An answer without its token. */
export interface SyncResponse {
  readonly body: JsonObject;
  /** Where the client stands once it has the answer. */
  readonly next: SyncToken;
  /** Nothing in it is news: the client would rather wait. */
  readonly isEmpty: boolean;
}

/** Puts the sections of an answer together, in a fixed order. */
@Injectable()
export class SyncResponses {
  constructor(
    private readonly activity: RoomActivity,
    private readonly withNews: RoomsWithNews,
    private readonly rooms: RoomsSection,
    private readonly accountData: AccountDataSection,
    private readonly presence: PresenceSection,
    private readonly devices: DevicesSection,
    private readonly profiles: ProfilesSection,
  ) {}

  /**
   * Everything between `since` and `now`.
   * @param isWhole it tells everything: where it may be text, `rooms` is a {@link WrittenRooms}
   * @spec client-server-api#get_matrixclientv3sync
   */
  async build(context: SyncContext, isWhole: boolean): Promise<SyncResponse> {
    // Not those of this moment: what was said in a room before the user went is told by no later sync.
    const joined = await this.activity.joinedAt(context.userId, context.now.events);
    const accountData = await this.accountData.changes(context);
    const entries = await this.withNews.entries(joined, accountData, context);
    const fresh = entries.filter((entry) => entry.fresh && entry.section === 'join').map((entry) => entry.roomId);
    const senders = this.profiles.isWanted(context) ? new Set<string>() : undefined;
    const [rooms, presence, devices] = await Promise.all([
      isWhole && context.asText === true && senders === undefined
        ? this.rooms.text(entries, accountData, context)
        : this.rooms.build(entries, accountData, context, { senders }),
      this.presence.build(joined, fresh, context),
      this.devices.build(joined, context),
    ]);
    const profiles = senders === undefined ? {} : await this.profiles.build(joined, senders, context);
    const body: JsonObject = {};
    if (accountData.global.length > 0) body['account_data'] = { events: accountData.global };
    const isText = rooms instanceof WrittenRooms;
    if (isText || Object.keys(rooms ?? {}).length > 0)
      body['rooms'] = !isText && holdsText(rooms ?? {}) ? await WrittenRooms.of(rooms ?? {}) : rooms;
    if (presence.length > 0) body['presence'] = { events: presence };
    if (Object.keys(profiles).length > 0) body['org.matrix.msc4429.users'] = profiles;
    const isEmpty = Object.keys(body).length === 0 && !devices.hasNews;
    const next = { ...context.now, toDevice: devices.toDevice, home: context.lazyMembers?.home };
    return { body: { ...body, ...devices.body }, next, isEmpty };
  }
}
