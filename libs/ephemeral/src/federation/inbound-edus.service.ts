import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { isJsonObject, isValidRoomId, type JsonObject } from '@rookery/matrix-types';
import { Clock, Metrics } from '@rookery/platform';
import { type EventBatch, RoomHooks } from '@rookery/rooms';
import type { PresenceName, PresenceState } from '../model/presence-state.js';
import { EarlyPresences } from '../presence/early-presences.js';
import { PresenceService } from '../presence/presence.service.js';
import { TypingService } from '../typing/typing.service.js';
import { InboundReceipts, isUserOf } from './inbound-receipts.service.js';
import { joinedAmong, knownAmong } from './joined-users.query.js';

/** What one EDU may hold; the rest is passed over. */
const maxPresences = 500;
const longestStatus = 1_024;
const states: ReadonlySet<unknown> = new Set<PresenceName>(['online', 'unavailable', 'offline', 'busy']);

/**
 * Typing, receipts and presence from other servers. A server speaks for its own users and only about rooms that they are in;
 * everything else, and what has the wrong shape, is passed over.
 * @spec server-server-api#edus
 */
@Injectable()
export class InboundEphemeral {
  readonly #presences;
  readonly #early = new EarlyPresences();

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly typing: TypingService,
    private readonly receipts: InboundReceipts,
    private readonly presence: PresenceService,
    metrics: Metrics,
    roomHooks: RoomHooks,
  ) {
    roomHooks.subscribe({ afterCommit: (batch) => this.#joined(batch) });
    this.#presences = metrics.counter('synapse_handler_presence_federation_presence');
  }

  /** Content of `m.typing`. */
  async receiveTyping(origin: string, content: JsonObject): Promise<void> {
    const { room_id: roomId, user_id: userId, typing } = content;
    if (typeof roomId !== 'string' || !isValidRoomId(roomId) || typeof typing !== 'boolean') return;
    if (!isUserOf(origin, userId)) return;
    if ((await joinedAmong(this.database, [{ roomId, userId }])).length === 0) return;
    await this.typing.setRemote(roomId, userId, typing);
  }

  /** Content of `m.receipt`. */
  receiveReceipts(origin: string, content: JsonObject): Promise<void> {
    return this.receipts.receive(origin, content);
  }

  /**
   * Content of `m.presence`. Presences of users who are in no room that is known here are kept for a while, and told when they are: their
   * join may be on its way, or this server just coming into a room, or not all members of one be known.
   */
  async receivePresence(origin: string, content: JsonObject): Promise<void> {
    const { push } = content;
    if (!this.presence.enabled || !Array.isArray(push)) return;
    const nowMs = this.clock.nowMs();
    const offered = push.slice(0, maxPresences).flatMap((one) => presenceIn(origin, one, nowMs));
    if (offered.length === 0) return;
    this.#presences.inc({}, offered.length);
    const known = await knownAmong(this.database, idsOf(offered));
    this.presence.receive(offered.filter(({ userId }) => known.has(userId)));
    const unknown = offered.filter(({ userId }) => !known.has(userId));
    if (unknown.length === 0) return;
    this.#early.add(unknown, this.clock.monotonicMs());
    // Of those who have joined since they were looked for nobody is going to tell.
    this.#told(await knownAmong(this.database, idsOf(unknown)));
  }

  /** People joined: how they are was said before. */
  #joined({ moves }: EventBatch): void {
    if (this.#early.size === 0) return;
    this.#told(moves.flatMap(({ userId, membership }) => (membership === 'join' ? [userId] : [])));
  }

  #told(userIds: Iterable<string>): void {
    const states = this.#early.takeOf(userIds, this.clock.monotonicMs());
    if (states.length > 0) this.presence.receive(states);
  }
}

const idsOf = (states: readonly PresenceState[]): string[] => states.map(({ userId }) => userId);

function presenceIn(origin: string, one: unknown, nowMs: number): PresenceState[] {
  if (!isJsonObject(one) || !isUserOf(origin, one['user_id']) || !states.has(one['presence'])) return [];
  const { user_id: userId, presence, last_active_ago: agoMs, status_msg: statusMsg } = one;
  const isStatus =
    typeof statusMsg === 'string' &&
    statusMsg.length <= longestStatus &&
    statusMsg.isWellFormed() &&
    !statusMsg.includes('\0');
  return [
    {
      userId,
      state: presence as PresenceName,
      lastActiveMs: typeof agoMs === 'number' && agoMs >= 0 && agoMs < nowMs ? Math.trunc(nowMs - agoMs) : nowMs,
      lastSyncMs: 0,
      lastFederationMs: nowMs,
      statusMsg: isStatus ? statusMsg : undefined,
      currentlyActive: one['currently_active'] === true,
    },
  ];
}
