import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { roomVersionRules } from '@rookery/events';
import { domainOf, isJsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { authStateOf, powerLevelsOf } from '@rookery/state-res';
import { RoomStateReader } from '../state/room-state-reader.js';

/** Joins by membership of another room. */
@Injectable()
export class RestrictedJoins {
  constructor(
    private readonly database: Database,
    private readonly state: RoomStateReader,
    private readonly config: Config,
  ) {}

  /**
   * Finds who lets somebody in under a restricted join rule.
   * @returns the local user to be named as authorizer; `undefined` when the join rule does not ask for one;
   *   `elsewhere` when only a user of another server could
   * @throws MatrixError 403 `M_FORBIDDEN` when the user is in none of the allowed rooms
   * @spec client-server-api#restricted-rooms
   */
  async authorizer(roomId: string, userId: string): Promise<string | 'elsewhere' | undefined> {
    const joinRules = await this.state.currentEvent(roomId, 'm.room.join_rules');
    const content = joinRules?.event.content ?? {};
    const rule = content['join_rule'];
    const rules = joinRules?.event.rules;
    const isRestricted =
      (rule === 'restricted' && rules?.joinRules.restricted) ||
      (rule === 'knock_restricted' && rules?.joinRules.knockRestricted);
    if (!isRestricted) return undefined;
    if (!(await this.#isInAny(allowedRooms(content), userId))) {
      throw MatrixError.forbidden('You are in none of the rooms whose members may join');
    }
    return (await this.#whoMayInvite(roomId)) ?? 'elsewhere';
  }

  /** Whether a user is joined to one of the rooms, as far as this server knows. */
  async #isInAny(roomIds: readonly string[], userId: string): Promise<boolean> {
    if (roomIds.length === 0) return false;
    const row = await this.database.get(
      `SELECT 1 AS found FROM current_state_events WHERE type = 'm.room.member' AND state_key = ? AND membership = 'join'
       AND ${this.database.dialect.anyOf('room_id')} LIMIT 1`,
      [userId, roomIds],
    );
    return row !== undefined;
  }

  async #whoMayInvite(roomId: string): Promise<string | undefined> {
    const events = await this.state.current(roomId, {
      types: [
        ['m.room.create', ''],
        ['m.room.power_levels', ''],
      ],
    });
    const first = events[0]?.event;
    const rules = first && roomVersionRules(first.rules.version);
    if (!rules) return undefined;
    const state = authStateOf(events.map((stored) => stored.event));
    const levels = powerLevelsOf(state, rules);
    const needed = levels.scalar('invite');
    const members = await this.database.query<{ user_id: string }>(
      `SELECT user_id FROM local_current_membership WHERE room_id = ? AND membership = 'join'`,
      [roomId],
    );
    return members
      .map((row) => row.user_id)
      .filter((userId) => domainOf(userId) === this.config.serverName && levels.user(userId) >= needed)
      .sort((a, b) => levels.user(b) - levels.user(a) || (a < b ? -1 : 1))[0];
  }
}

const maxAllowed = 100;

/** The rooms named by a restricted join rule. */
export function allowedRooms(content: Readonly<Record<string, unknown>>): string[] {
  const { allow } = content;
  if (!Array.isArray(allow)) return [];
  return allow
    .slice(0, maxAllowed)
    .flatMap((entry) =>
      isJsonObject(entry) && entry['type'] === 'm.room_membership' && typeof entry['room_id'] === 'string'
        ? [entry['room_id']]
        : [],
    );
}
