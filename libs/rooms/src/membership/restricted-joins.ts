import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { allowedRooms } from '../model/join-rules.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { selectLocalUsers } from '../reading/local-members.query.js';
import { isInAnyOf, selectOurRooms } from './membership.query.js';

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
    const allowed = await this.#allowedBy(roomId);
    if (!allowed) return undefined;
    if (!(await isInAnyOf(this.database, userId, allowed))) {
      throw MatrixError.forbidden('You are in none of the rooms whose members may join');
    }
    return (await this.#whoMayInvite(roomId)) ?? 'elsewhere';
  }

  /**
   * Finds who lets a user of another server in, who is neither in the room nor invited.
   * @returns the local user to be named as authorizer; `undefined` when the join rule does not ask for one
   * @throws MatrixError 403 `M_FORBIDDEN` when the user is in none of the allowed rooms, 400 `M_UNABLE_TO_AUTHORISE_JOIN` when
   *   this server cannot tell, 400 `M_UNABLE_TO_GRANT_JOIN` when nobody here may let people in
   * @spec server-server-api#restricted-rooms
   */
  async authorizerForOthers(roomId: string, userId: string): Promise<string | undefined> {
    const allowed = await this.#allowedBy(roomId);
    if (!allowed) return undefined;
    const known = await selectOurRooms(this.database, allowed);
    if (!(await isInAnyOf(this.database, userId, known))) {
      // Where members are missing nobody here can tell: another server may, and would not be asked after a final refusal.
      if (known.length === allowed.length && known.every((allowedId) => this.state.isWhole(allowedId)))
        throw MatrixError.forbidden('The user is in none of the allowed rooms');
      const message = 'This server does not know all members of the rooms whose members may join';
      throw MatrixError.unableToAuthoriseJoin(message);
    }
    const authorizer = await this.#whoMayInvite(roomId);
    if (authorizer !== undefined) return authorizer;
    throw MatrixError.unableToGrantJoin();
  }

  /** The rooms whose members may join; `undefined` when the join rule is another. */
  async #allowedBy(roomId: string): Promise<string[] | undefined> {
    const joinRules = await this.state.currentEvent(roomId, 'm.room.join_rules');
    const content = joinRules?.event.content ?? {};
    const rule = content['join_rule'];
    const rules = joinRules?.event.rules;
    const isRestricted =
      (rule === 'restricted' && rules?.joinRules.restricted) ||
      (rule === 'knock_restricted' && rules?.joinRules.knockRestricted);
    return isRestricted ? [...new Set(allowedRooms(content))] : undefined;
  }

  async #whoMayInvite(roomId: string): Promise<string | undefined> {
    const levels = await this.state.powerLevels(roomId);
    if (!levels) return undefined;
    const needed = levels.scalar('invite');
    const members = await selectLocalUsers(this.database, roomId, ['join']);
    return members
      .filter((userId) => domainOf(userId) === this.config.serverName && levels.user(userId) >= needed)
      .sort((a, b) => levels.user(b) - levels.user(a) || (a < b ? -1 : 1))[0];
  }
}
