import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { type ServerAcl, serverAclOf } from './server-acl.js';

const everybody: ServerAcl = { allows: () => true };
/** Servers that are kept in memory, over all rooms. */
const maxServers = 200_000;

/** Which servers are in a room, and which may be. */
@Injectable()
export class RoomServers implements OnModuleInit {
  readonly #servers: Cache<string, ReadonlySet<string>>;
  readonly #acls: Cache<string, ServerAcl>;
  #changes = 0;

  constructor(
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly hooks: RoomHooks,
    config: Config,
  ) {
    this.#servers = new Cache(config, 'room_servers', { max: maxServers, sizeOf: (servers) => servers.size + 1 });
    this.#acls = new Cache(config, 'room_server_acls', { max: 2_000 });
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: ({ roomId, events }) => {
        // Any state may have changed memberships, by a resolution.
        if (events.some(({ event }) => event.stateKey !== undefined)) this.#forget(roomId);
      },
      onRoomPurged: (tx, roomId) => {
        tx.afterCommit(() => this.#forget(roomId));
        return Promise.resolve();
      },
    });
  }

  /** Servers with a joined member; kept in memory, not to be changed. */
  async of(roomId: string): Promise<ReadonlySet<string>> {
    const known = this.#servers.get(roomId);
    if (known) return known;
    const changes = this.#changes;
    const servers = await this.memberships.hostsIn(roomId);
    if (changes === this.#changes) this.#servers.set(roomId, servers);
    return servers;
  }

  /** Whether a server has a joined member. */
  async isIn(roomId: string, serverName: string): Promise<boolean> {
    return (await this.of(roomId)).has(serverName);
  }

  /** Whether the room's access control list lets a server take part; without one every server may. */
  async mayTakePart(roomId: string, serverName: string): Promise<boolean> {
    return (await this.#aclOf(roomId)).allows(serverName);
  }

  async #aclOf(roomId: string): Promise<ServerAcl> {
    const eventId = await this.state.currentId(roomId, 'm.room.server_acl');
    if (eventId === undefined) return everybody;
    const known = this.#acls.get(eventId);
    if (known) return known;
    const event = await this.state.currentEvent(roomId, 'm.room.server_acl');
    if (!event) return everybody;
    const acl = serverAclOf(event.event.content);
    this.#acls.set(event.event.eventId, acl);
    return acl;
  }

  #forget(roomId: string): void {
    this.#changes++;
    this.#servers.delete(roomId);
  }
}
