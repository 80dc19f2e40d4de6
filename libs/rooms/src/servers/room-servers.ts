import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
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
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    config: Config,
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
        if (moves.length > 0 || missedServers !== undefined) this.#forget(roomId);
      },
      onRoomPurged: (tx, roomId) => {
        tx.unlessRolledBack(() => this.#forget(roomId));
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
    return (await this.openTo(serverName, [roomId])).has(roomId);
  }

  /** Those of some rooms in which a server may take part. */
  async openTo(serverName: string, roomIds: readonly string[]): Promise<Set<string>> {
    const states = await this.state.currentIdsOf(roomIds, { types: [['m.room.server_acl', '']] });
    const idOf = (roomId: string): string | undefined => states.get(roomId)?.values().next().value;
    const acls = new Map<string, ServerAcl>();
    const unread: string[] = [];
    for (const roomId of roomIds) {
      const id = idOf(roomId);
      const known = id === undefined ? undefined : this.#acls.get(id);
      if (known) acls.set(id!, known);
      else if (id !== undefined) unread.push(id);
    }
    for (const [id, event] of unread.length === 0 ? [] : await this.events.events(unread)) {
      const acl = serverAclOf(event.content);
      this.#acls.set(id, acl);
      acls.set(id, acl);
    }
    return new Set(roomIds.filter((roomId) => (acls.get(idOf(roomId) ?? '') ?? everybody).allows(serverName)));
  }

  #forget(roomId: string): void {
    this.#changes++;
    this.#servers.delete(roomId);
  }
}
