import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { isJsonObject, isValidRoomId, type JsonObject } from '@rookery/matrix-types';
import { Clock, Metrics } from '@rookery/platform';
import type { PresenceName, PresenceState } from '../model/presence-state.js';
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

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly typing: TypingService,
    private readonly receipts: InboundReceipts,
    private readonly presence: PresenceService,
    metrics: Metrics,
  ) {
    this.#presences = metrics.counter('synapse_handler_presence_federation_presence');
  }

  /** Content of `m.typing`. */
  async receiveTyping(origin: string, content: JsonObject): Promise<void> {
    const { room_id: roomId, user_id: userId, typing } = content;
    if (typeof roomId !== 'string' || !isValidRoomId(roomId) || typeof typing !== 'boolean') return;
    if (!isUserOf(origin, userId)) return;
    if ((await joinedAmong(this.database, [roomId], [userId])).length === 0) return;
    await this.typing.setRemote(roomId, userId, typing);
  }

  /** Content of `m.receipt`. */
  receiveReceipts(origin: string, content: JsonObject): Promise<void> {
    return this.receipts.receive(origin, content);
  }

  /**
   * Content of `m.presence`.
   * @returns entries for users who are in no room that this server knows
   */
  async receivePresence(origin: string, content: JsonObject): Promise<JsonObject[]> {
    const { push } = content;
    if (!this.presence.enabled || !Array.isArray(push)) return [];
    const nowMs = this.clock.nowMs();
    const entries = push.slice(0, maxPresences).filter((one) => isJsonObject(one));
    const offered = entries.flatMap((one) => presenceIn(origin, one, nowMs));
    if (offered.length === 0) return [];
    this.#presences.inc({}, offered.length);
    const known = await knownAmong(
      this.database,
      offered.map(({ userId }) => userId),
    );
    this.presence.receive(offered.filter(({ userId }) => known.has(userId)));
    const unknown = new Set(offered.flatMap(({ userId }) => (known.has(userId) ? [] : [userId])));
    return entries.filter(({ user_id: userId }) => unknown.has(userId as string));
  }
}

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
