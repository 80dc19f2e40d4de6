import { Injectable } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import { EventStore, RoomStateReader } from '@rookery/rooms';
import { MonthlyActiveUsers, ParticipationGate } from '@rookery/users';
import { NoticeRooms } from './notice-rooms.js';
import { ServerNotices } from './server-notices.service.js';

const noticeMsgtype = 'm.server_notice';
/** Most users of whom it is known what they were told. */
const maxRemembered = 20_000;

/**
 * Tells active users while nobody else gets in, by a pinned notice, and takes it off the pins when that is over.
 * @spec client-server-api#server-notices
 */
@Injectable()
export class LimitNotices {
  /** Whether the notice is pinned, for users of whom that is known. */
  readonly #told: Cache<string, boolean>;

  constructor(
    private readonly config: Config,
    private readonly users: MonthlyActiveUsers,
    private readonly gate: ParticipationGate,
    private readonly notices: ServerNotices,
    private readonly rooms: NoticeRooms,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
  ) {
    this.#told = new Cache(config, 'limit_notices', {
      ...{ invalidation: 'on write', elsewhere: 'not kept', max: 2 * maxRemembered },
    });
  }

  /** Which of these users are to be told, or to be told that it is over. */
  async among(userIds: readonly string[]): Promise<string[]> {
    if (!this.notices.enabled || !this.users.limited || this.config.get('hs_disabled')) return [];
    const reached = await this.#isReached();
    return userIds.filter((userId) => this.#told.get(userId) !== reached);
  }

  /** Brings the pins of one user's room in line. */
  async tell(userId: string): Promise<void> {
    const reached = await this.#isReached();
    // Whoever has no place themselves cannot read it.
    if (reached && !(await this.users.isCounted(userId))) return;
    const roomId = await this.notices.roomOf(userId);
    const pins = roomId === undefined ? { ours: [], others: [] } : await this.#pinsOf(roomId);
    if (roomId !== undefined) await this.rooms.tag(userId, roomId);
    if (reached && pins.ours.length === 0) await this.#pin(userId, pins.others);
    else if (!reached && pins.ours.length > 0) await this.#setPins(userId, pins.others);
    this.#told.set(userId, reached);
  }

  async #isReached(): Promise<boolean> {
    return this.config.get('mau_limit_alerting') && (await this.users.isFull());
  }

  async #pin(userId: string, others: readonly string[]): Promise<void> {
    const { message, extra } = this.gate.limitReached();
    const eventId = await this.notices.send(userId, {
      msgtype: noticeMsgtype,
      body: message,
      server_notice_type: 'm.server_notice.usage_limit_reached',
      ...extra,
    });
    await this.#setPins(userId, [...others, eventId]);
  }

  async #setPins(userId: string, pinned: readonly string[]): Promise<void> {
    await this.notices.send(userId, { pinned: [...pinned] }, { type: 'm.room.pinned_events', stateKey: '' });
  }

  /** What is pinned in a room: our notices of limits, and everything else. */
  async #pinsOf(roomId: string): Promise<{ readonly ours: readonly string[]; readonly others: readonly string[] }> {
    const content = (await this.state.currentEvent(roomId, 'm.room.pinned_events'))?.event.content;
    const pinned = (Array.isArray(content?.['pinned']) ? (content['pinned'] as unknown[]) : []).filter(
      (id) => typeof id === 'string',
    );
    const events = await this.events.events(pinned);
    const isOurs = (id: string): boolean => events.get(id)?.content['msgtype'] === noticeMsgtype;
    return { ours: pinned.filter(isOurs), others: pinned.filter((id) => !isOurs(id)) };
  }
}
