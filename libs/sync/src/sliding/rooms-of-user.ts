import { Injectable } from '@nestjs/common';
import { prejoinStateOf } from '@rookery/events';
import { isJsonObject, type Membership } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { EventStore, InvitePermissions, MembershipHistory } from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { RoomActivity } from '../caches/room-activity.js';
import { RoomFactsCache } from '../caches/room-facts.js';
import type { CurrentMembership } from '../sections/room-list.js';
import type { ListedRoom, RoomSection } from './lists.js';

/** A user's rooms as a request sees them. */
export interface UserRoomView {
  /** Those that lists choose from. */
  readonly listed: readonly ListedRoom[];
  /** Those that the user has left, however that came about; some of them are listed. */
  readonly left: readonly CurrentMembership[];
}

const sectionOf: Readonly<Record<Membership, RoomSection>> = {
  join: 'join',
  invite: 'invite',
  knock: 'knock',
  leave: 'leave',
  ban: 'leave',
};

/** What a user's account data says about rooms. */
interface OwnMarks {
  /** Position up to which it was read. */
  readonly position: number;
  readonly direct: ReadonlySet<string>;
  readonly judgeInvite: Awaited<ReturnType<InvitePermissions['of']>>;
  /** Read when first asked for. */
  tags: Promise<ReadonlyMap<string, ReadonlySet<string>>> | undefined;
}

const maxUsers = 5_000;

/** The rooms of a user, with everything that lists are sorted and filtered by. */
@Injectable()
export class RoomsOfUser {
  readonly #marks: Cache<string, OwnMarks>;
  readonly #excluded: ReadonlySet<string>;

  constructor(
    private readonly activity: RoomActivity,
    private readonly facts: RoomFactsCache,
    private readonly history: MembershipHistory,
    private readonly events: EventStore,
    private readonly accountData: AccountDataService,
    private readonly permissions: InvitePermissions,
    config: Config,
  ) {
    this.#marks = new Cache(config, 'room_marks', {
      invalidation: 'stream account_data',
      elsewhere: 'checked',
      max: 2 * maxUsers,
    });
    this.#excluded = new Set(config.get('exclude_rooms_from_sync'));
  }

  /**
   * The rooms as they are at `position` of the events. What the user left without being sent away is not listed.
   * No query while nothing of it has changed.
   * @param isShown rooms that the client has as something else than the invite they come with: where that is not to be shown,
   *   they are told as left; nothing is told in place of those that answer a knock
   */
  async view(userId: string, position: number, isShown: (invite: CurrentMembership) => boolean): Promise<UserRoomView> {
    const [memberships, marks] = await Promise.all([this.#memberships(userId, position), this.#marksOf(userId)]);
    const followed = memberships.filter((each) => !this.#excluded.has(each.roomId));
    const isHidden = (each: CurrentMembership): boolean =>
      each.membership === 'invite' && marks.judgeInvite(each.sender) !== 'allow';
    const shown = followed.filter((each) => !isHidden(each));
    const hidden = followed.filter((each) => isHidden(each) && isShown(each));
    const left = [
      ...shown.filter((each) => sectionOf[each.membership] === 'leave'),
      ...(await this.#behindInvites(userId, hidden, position)),
    ];
    const present = shown.filter(
      (each) => sectionOf[each.membership] !== 'leave' || (!each.forgotten && each.sender !== userId),
    );
    const waiting = present.filter((each) => each.membership === 'invite' || each.membership === 'knock');
    const [facts, previews] = await Promise.all([
      this.facts.of(present.map((each) => each.roomId)),
      this.#previews(waiting),
    ]);
    const listed = present.map((membership): ListedRoom => {
      const { roomId } = membership;
      const section = sectionOf[membership.membership];
      const preview = previews.get(roomId);
      const known = facts.get(roomId);
      const position = membership.streamOrdering;
      return {
        roomId,
        section,
        membership,
        // Who is not in the room is not told when something happens there.
        activity: section === 'join' ? (known?.lastActivity ?? position) : position,
        roomType: preview ? preview.roomType : known?.roomType,
        // By looking for it whoever was sent away could find out what the room is called by now.
        name: preview ? preview.name : section === 'join' ? known?.name : undefined,
        isEncrypted: preview ? preview.isEncrypted : known?.isEncrypted === true,
        isDm: marks.direct.has(roomId),
      };
    });
    return { listed, left };
  }

  /** Names of the tags of each room that has any. */
  async tags(userId: string): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    const marks = await this.#marksOf(userId);
    marks.tags ??= this.accountData.roomChanges(userId, 0, marks.position, ['m.tag']).then((rows) => {
      const tags = new Map<string, ReadonlySet<string>>();
      for (const row of rows) {
        const content = JSON.parse(row.content) as unknown;
        const named = isJsonObject(content) && isJsonObject(content['tags']) ? Object.keys(content['tags']) : [];
        if (named.length > 0) tags.set(row.roomId, new Set(named));
      }
      return tags;
    });
    try {
      return await marks.tags;
    } catch (error) {
      this.#marks.delete(userId);
      throw error;
    }
  }

  async #memberships(
    userId: string,
    position: number,
  ): Promise<readonly (CurrentMembership & { readonly forgotten?: boolean })[]> {
    const { byId } = await this.activity.roomsOf(userId);
    const later = [...byId.values()].filter((each) => each.streamOrdering > position);
    if (later.length === 0) return [...byId.values()];
    const before = await this.history.at(
      userId,
      later.map((each) => each.roomId),
      position,
    );
    return [...[...byId.values()].filter((each) => each.streamOrdering <= position), ...before.values()];
  }

  /** What is told in place of invites that are not shown: how what was before them ended. */
  async #behindInvites(
    userId: string,
    invites: readonly CurrentMembership[],
    position: number,
  ): Promise<readonly CurrentMembership[]> {
    const roomIds = invites.map((each) => each.roomId);
    const before = await this.history.beforeInvites(userId, roomIds, position);
    return (
      [...before.values()]
        // The knock that an invite answers: it has not ended.
        .filter((each) => each.membership !== 'knock')
        // Without an event of its own a stay was ended by state resolution.
        .map((each) => (sectionOf[each.membership] === 'leave' ? each : { ...each, membership: 'leave' }))
    );
  }

  async #marksOf(userId: string): Promise<OwnMarks> {
    const known = this.#marks.get(userId);
    if (known !== undefined && !this.accountData.hasChanged(userId, known.position)) return known;
    const position = this.accountData.stream.current();
    const [content, judgeInvite] = await Promise.all([
      this.accountData.find(userId, undefined, 'm.direct'),
      this.permissions.of(userId),
    ]);
    const direct = new Set<string>();
    for (const rooms of Object.values(content ?? {})) {
      if (!Array.isArray(rooms)) continue;
      for (const roomId of rooms) if (typeof roomId === 'string') direct.add(roomId);
    }
    const marks: OwnMarks = { position, direct, judgeInvite, tags: undefined };
    this.#marks.set(userId, marks);
    return marks;
  }

  /** What the state that came with invites and knocks says of the rooms. */
  async #previews(
    waiting: readonly CurrentMembership[],
  ): Promise<Map<string, Pick<ListedRoom, 'roomType' | 'name' | 'isEncrypted'>>> {
    const previews = new Map<string, Pick<ListedRoom, 'roomType' | 'name' | 'isEncrypted'>>();
    const loaded = await this.events.many(waiting.map((each) => each.eventId));
    for (const { roomId, eventId } of waiting) {
      const member = loaded.get(eventId)?.event;
      if (member === undefined) continue;
      const contentOf = (type: string): Readonly<Record<string, unknown>> | undefined => {
        const found = prejoinStateOf(member).find((event) => event['type'] === type && event['state_key'] === '');
        return isJsonObject(found?.['content']) ? found['content'] : undefined;
      };
      const roomType = contentOf('m.room.create')?.['type'];
      const name = contentOf('m.room.name')?.['name'];
      previews.set(roomId, {
        roomType: typeof roomType === 'string' ? roomType : undefined,
        name: typeof name === 'string' ? name : undefined,
        isEncrypted: contentOf('m.room.encryption') !== undefined,
      });
    }
    return previews;
  }
}
