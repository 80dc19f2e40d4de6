import { Injectable, type OnModuleInit } from '@nestjs/common';
import { serverAclOf, type ServerAcl } from '@rookery/events';
import { Cache, Config } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';

const everybody: ServerAcl = { allows: () => true };
/** Servers that are kept in memory, over all rooms. */
const maxServers = 200_000;

/** Which servers are in a room, and which may be. */
@Injectable()
export class RoomServers implements OnModuleInit {
  readonly #servers: Cache<string, ReadonlySet<string>>;
  readonly #acls: Cache<string, ServerAcl>;

  constructor(
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
  ) {
    this.#servers = new Cache(config, 'room_servers', {
      invalidation: 'stream events',
      elsewhere: 'not kept',
      max: maxServers,
      sizeOf: (servers) => servers.size + 1,
    });
    this.#acls = new Cache(config, 'room_server_acls', { invalidation: 'never', max: 2_000 });
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: ({ roomId, moves, missedServers }) => {
        if (moves.length > 0 || missedServers !== undefined) this.#servers.delete(roomId);
      },
      onRoomPurged: (tx, roomId) => {
        tx.unlessRolledBack(() => this.#servers.delete(roomId));
        return Promise.resolve();
      },
    });
  }

  /** Servers with a joined member; kept in memory, not to be changed. */
  of(roomId: string): Promise<ReadonlySet<string>> {
    return this.#servers.fetch(roomId, async () => (await this.memberships.hostsIn([roomId])).get(roomId)!);
  }

  /** {@link of} some rooms, by room. */
  ofAll(roomIds: readonly string[]): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    return this.#servers.fetchMany(roomIds, (missing) => this.memberships.hostsIn(missing));
  }

  /** Whether this server has a joined member. */
  isHere(roomId: string): Promise<boolean> {
    return this.isIn(roomId, this.config.serverName);
  }

  /** Whether a server has a joined member. */
  async isIn(roomId: string, serverName: string): Promise<boolean> {
    return (await this.of(roomId)).has(serverName);
  }

  /** Those of some rooms in which a server has a joined member. */
  async among(serverName: string, roomIds: readonly string[]): Promise<Set<string>> {
    const rooms = await this.ofAll(roomIds);
    return new Set(roomIds.filter((roomId) => rooms.get(roomId)!.has(serverName)));
  }

  /** Whether the room's access control list lets a server take part; without one every server may. */
  async mayTakePart(roomId: string, serverName: string): Promise<boolean> {
    return (await this.openTo(serverName, [roomId])).has(roomId);
  }

  /** Those of some rooms in which a server may take part. */
  async openTo(serverName: string, roomIds: readonly string[]): Promise<Set<string>> {
    const states = await this.state.currentIdsOf(roomIds, { types: [['m.room.server_acl', '']] });
    const idOf = (roomId: string): string | undefined => states.get(roomId)?.values().next().value;
    const ids = roomIds.flatMap((roomId) => idOf(roomId) ?? []);
    const acls = await this.#acls.fetchMany(ids, async (unread) => {
      const events = await this.events.events(unread);
      return new Map([...events].map(([id, { content }]) => [id, serverAclOf(content)]));
    });
    return new Set(roomIds.filter((roomId) => (acls.get(idOf(roomId) ?? '') ?? everybody).allows(serverName)));
  }
}
