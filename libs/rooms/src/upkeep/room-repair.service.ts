import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { authStateOf, powerLevelsOf } from '@rookery/state-res';
import { EventPersister } from '../pipeline/event-persister.js';
import { dummyEventType } from '../model/stored-event.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import {
  deleteForwardExtremities,
  type ForwardExtremity,
  selectForwardExtremities,
} from './forward-extremities.query.js';

/** So many users are tried to say something where forward extremities are dropped. */
const maxSenders = 10;

/** Mends rooms: forward extremities that have piled up, rooms without anybody in charge. */
@Injectable()
export class RoomRepair {
  constructor(
    private readonly database: Database,
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly persister: EventPersister,
    private readonly config: Config,
  ) {}

  /** The forward extremities of a room, the newest first. */
  forwardExtremities(roomId: string): Promise<ForwardExtremity[]> {
    return selectForwardExtremities(this.database, roomId);
  }

  /**
   * Keeps only the newest forward extremity of a room, and the state there. A local user says so where one may: whoever holds the room's
   * state in memory, and every client, then learns what has changed of it.
   * @returns how many went
   * @throws MatrixError 400 `M_UNKNOWN` when the room has no forward extremities, or its state would change and nobody here can say so
   */
  async dropExtremities(roomId: string): Promise<number> {
    const extremities = await this.forwardExtremities(roomId);
    const members =
      extremities.length > 1 ? await this.memberships.joinedUserIds([roomId]) : new Map<string, Set<string>>();
    const local = [...(members.get(roomId) ?? [])].filter((member) => domainOf(member) === this.config.serverName);
    for (const sender of local.slice(0, maxSenders)) {
      try {
        const draft = { roomId, type: dummyEventType, sender, content: {}, unchecked: true };
        return await this.persister.keepNewestExtremity(draft);
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
      }
    }
    return this.#dropRows(roomId);
  }

  /** Where nobody of this server can say anything: possible only where all of them know the same state. */
  #dropRows(roomId: string): Promise<number> {
    return this.persister.exclusively(roomId, async () => {
      const [newest, ...others] = await this.forwardExtremities(roomId);
      if (!newest) throw MatrixError.badRequest('The room has no forward extremities');
      if (others.length === 0) return 0;
      if (others.some((other) => other.stateGroup !== newest.stateGroup))
        throw MatrixError.badRequest('Nobody of this server may say anything in the room');
      const ids = others.map((extremity) => extremity.eventId);
      await this.database.write((tx) => deleteForwardExtremities(tx, roomId, ids), { name: 'drop_extremities' });
      return ids.length;
    });
  }

  /**
   * Gives a user the power of the most powerful local member of a room, and invites the user if need be.
   * @throws MatrixError 400 `M_UNKNOWN` when nobody of this server could do that
   */
  async makeAdmin(roomId: string, userId: string): Promise<void> {
    const events = (
      await this.state.current(roomId, {
        types: [
          ['m.room.create', ''],
          ['m.room.power_levels', ''],
          ['m.room.join_rules', ''],
        ],
      })
    ).map((stored) => stored.event);
    const state = authStateOf(events);
    const create = state('m.room.create', '');
    if (!create) throw MatrixError.badRequest('This server is not in the room');
    const levels = powerLevelsOf(state, create.rules);
    const joined = await this.memberships.joinedUserIds([roomId]);
    const [best] = [...(joined.get(roomId) ?? [])]
      .filter((member) => domainOf(member) === this.config.serverName)
      .sort((a, b) => levels.user(b) - levels.user(a));
    if (best === undefined || levels.user(best) < levels.event('m.room.power_levels', true)) {
      throw MatrixError.badRequest('Nobody of this server has the power to do this');
    }
    const power = levels.user(best);
    // Where no event says so, whoever has power is the creator, who would lose it by the first event that does not name them.
    const content = state('m.room.power_levels', '')?.content ?? {
      users: Number.isFinite(power) ? { [best]: power } : {},
    };
    const users: JsonObject = { ...(isJsonObject(content['users']) ? content['users'] : {}) };
    const needed = Number.isFinite(power) ? power : Math.max(100, levels.event('m.room.power_levels', true));
    if (levels.user(userId) < needed) {
      users[userId] = needed;
      await this.#send(roomId, best, 'm.room.power_levels', '', { ...content, users });
    }
    if (joined.get(roomId)?.has(userId)) return;
    const joinRule = state('m.room.join_rules', '')?.content['join_rule'];
    if (joinRule !== 'public' && (await this.memberships.currentOf(roomId, userId)) !== 'invite') {
      await this.#send(roomId, best, 'm.room.member', userId, { membership: 'invite' });
    }
  }

  async #send(roomId: string, sender: string, type: string, stateKey: string, content: JsonObject): Promise<void> {
    await this.persister.send({ roomId, type, stateKey, sender, content, unchecked: true });
  }
}
