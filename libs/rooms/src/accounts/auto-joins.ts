import { Injectable, type OnModuleInit } from '@nestjs/common';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Config, Logger, serverRequester } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { AliasService } from '../directory/alias.service.js';
import { AutoJoinRooms } from './auto-join-rooms.js';
import { JoinService } from '../membership/join.service.js';

/** Brings new users into the rooms of `auto_join_rooms`. */
@Injectable()
export class AutoJoins implements OnModuleInit {
  constructor(
    private readonly hooks: UserHooks,
    private readonly aliases: AliasService,
    private readonly joins: JoinService,
    private readonly rooms: AutoJoinRooms,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.registered.subscribe({
      afterCommit: async ({ userId, isGuest, appserviceId }) => {
        if (appserviceId !== undefined || (isGuest && !this.config.get('auto_join_rooms_for_guests'))) return;
        // Another server may take its time: nobody waits for that with a registration.
        const far: string[] = [];
        for (const alias of this.config.get('auto_join_rooms')) {
          if (domainOf(alias) === this.config.serverName) await this.#join(userId, alias);
          else far.push(alias);
        }
        void this.#joinAll(userId, far);
      },
    });
  }

  async #joinAll(userId: string, aliases: readonly string[]): Promise<void> {
    for (const alias of aliases) await this.#join(userId, alias);
  }

  /** Never rejects: an account is good without its rooms. */
  async #join(userId: string, alias: string): Promise<void> {
    try {
      const found = await this.aliases.resolve(alias);
      const isOurs = domainOf(alias) === this.config.serverName;
      const roomId = found?.roomId ?? (isOurs ? await this.rooms.create(alias, userId) : undefined);
      if (roomId === undefined) throw MatrixError.noSuchRoom();
      await this.rooms.open(roomId, userId);
      await this.joins.join(serverRequester(userId), roomId, { unchecked: true, via: found?.servers });
    } catch (err) {
      const reason = MatrixError.is(err) ? { reason: err.message } : { err };
      this.logger.warn('A new user could not join a room of auto_join_rooms', { userId, alias, ...reason });
    }
  }
}
