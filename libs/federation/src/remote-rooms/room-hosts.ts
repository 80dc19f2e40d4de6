import { Injectable } from '@nestjs/common';
import { domainOf } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { RoomServers, RoomStateReader } from '@rookery/rooms';
import { authStateOf, creatorsOf, powerLevelsOf } from '@rookery/state-res';
import { Candidates } from './candidates.js';

/** Rooms of which is remembered who answered last. */
const maxRemembered = 2_000;

/** Knows which servers of a room are worth asking. */
@Injectable()
export class RoomHosts {
  readonly #answered: Cache<string, { readonly server: string }>;

  constructor(
    private readonly servers: RoomServers,
    private readonly state: RoomStateReader,
    private readonly candidates: Candidates,
    config: Config,
  ) {
    this.#answered = new Cache(config, 'room_hosts', { invalidation: 'expires', max: maxRemembered });
  }

  /**
   * Other servers with members in a room: who answered last, then by the power of their users.
   * @param limit how many at most
   */
  async likely(roomId: string, limit: number): Promise<string[]> {
    const hosts = await this.servers.of(roomId);
    const last = this.#answered.get(roomId)?.server;
    const powerful = await this.#byPower(roomId);
    const inOrder = [...(last === undefined ? [] : [last]), ...powerful, ...hosts].filter((host) => hosts.has(host));
    return this.candidates.usable(new Set(inOrder)).slice(0, limit);
  }

  /** Other servers with members who may invite to a room, the most powerful first. */
  async inviting(roomId: string): Promise<string[]> {
    const hosts = await this.servers.of(roomId);
    return (await this.#byPower(roomId, true)).filter((host) => hosts.has(host));
  }

  /** Remembers that a server of a room was of help. */
  answered(roomId: string, server: string): void {
    this.#answered.set(roomId, { server });
  }

  /** Servers of the users to whom the power levels give power. */
  async #byPower(roomId: string, invitingOnly = false): Promise<string[]> {
    const types = [
      ['m.room.create', ''],
      ['m.room.power_levels', ''],
    ] as const;
    const events = (await this.state.current(roomId, { types })).map((stored) => stored.event);
    const [first] = events;
    if (!first) return [];
    const levels = powerLevelsOf(authStateOf(events), first.rules);
    const named = events.find((event) => event.type === 'm.room.power_levels')?.content['users'];
    const create = events.find((event) => event.type === 'm.room.create');
    const users = new Set([...(create ? creatorsOf(create) : []), ...Object.keys(named ?? {})]);
    const needed = invitingOnly ? levels.scalar('invite') : levels.scalar('users_default');
    return [...users]
      .map((userId) => ({ host: domainOf(userId), level: levels.user(userId) }))
      .filter(({ level }) => level >= needed)
      .sort((a, b) => b.level - a.level)
      .map(({ host }) => host);
  }
}
