import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { serverAclOf, type ServerAcl } from '@rookery/events';
import { FederationClient } from '@rookery/federation-client';
import { isValidServerName } from '@rookery/matrix-types';
import { batchesBySize, batchesOf, Cache, Config, isAwaited, ownTurn } from '@rookery/platform';
import { type EventBatch, EventStore, MembershipReader, RoomHooks } from '@rookery/rooms';
import { knowsServers, roomsOfLocalUsers, serverAclsOf, serversInRooms } from './sender.query.js';

/** Servers that are kept in memory, over all rooms. */
const maxServers = 500_000;
const noRooms: ReadonlySet<string> = new Set();
/** Users whose rooms are looked up at once. */
const usersAtOnce = 50;
/** Servers that are put together in a turn of the event loop, and members who are asked for theirs. */
const [serversPerTurn, membersPerTurn] = [100_000, 10_000];

/** Other servers with a joined member, and the event that says which of them may take part. */
export interface Audience {
  readonly servers: readonly string[];
  readonly aclId: string | undefined;
}

const aclType = 'm.room.server_acl';

/** The audience of a room as a hook sees it. */
export const audienceOf = (room: EventBatch['room']): Audience => ({
  servers: room.remoteServers,
  aclId: room.stateId(aclType, ''),
});

/** To which other servers news of a room go: those with a joined member that the room and the settings allow. */
@Injectable()
export class RemoteAudience implements OnModuleInit {
  readonly #rooms: Cache<string, Audience | Promise<Audience>>;
  readonly #acls: Cache<string, ServerAcl>;
  #hasAny = false;
  /** What may be reached of a list, which is the same object for all events of a room. */
  readonly #reachable = new WeakMap<readonly string[], readonly string[]>();
  /** And what was allowed of it. */
  readonly #allowed = new WeakMap<readonly string[], { aclId: string | undefined; allowed: readonly string[] }>();

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly client: FederationClient,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly memberships: MembershipReader,
  ) {
    const sizeOf = (entry: Audience | Promise<Audience>): number => (isAwaited(entry) ? 1 : entry.servers.length + 1);
    this.#rooms = new Cache(config, 'federation_audiences', {
      invalidation: 'stream events',
      elsewhere: 'not kept',
      max: maxServers,
      sizeOf,
    });
    this.#acls = new Cache(config, 'federation_server_acls', { invalidation: 'never', max: 2_000 });
  }

  /** Whether any other server may be in any room; `false` is certain, and saves the look-ups. */
  get hasAny(): boolean {
    return this.#hasAny;
  }

  async onModuleInit(): Promise<void> {
    this.hooks.subscribe({
      afterCommit: ({ roomId, room, backfilled }) => {
        if (backfilled) return;
        if (room.remoteServers.length > 0) this.#hasAny = true;
        const known = this.#rooms.get(roomId);
        if (known === undefined) return;
        if (isAwaited(known) || known.servers !== room.remoteServers || known.aclId !== audienceOf(room).aclId)
          this.#rooms.set(roomId, audienceOf(room));
      },
      onRoomPurged: (tx, roomId) => {
        tx.unlessRolledBack(() => this.#rooms.delete(roomId));
        return Promise.resolve();
      },
    });
    if (await knowsServers(this.database)) this.#hasAny = true;
  }

  /** Other servers to tell news of a room. Not to be changed. */
  async of(roomId: string): Promise<readonly string[]> {
    return (await this.ofRooms([roomId])).get(roomId) ?? [];
  }

  /** The same for many rooms; a few queries for those that are not in memory, and some more where they have many members. */
  async ofRooms(roomIds: Iterable<string>): Promise<Map<string, readonly string[]>> {
    const rooms = new Map<string, readonly string[]>();
    for (const [roomId, audience] of await this.#audiences(roomIds)) rooms.set(roomId, await this.allowed(audience));
    return rooms;
  }

  /** {@link ofRooms} with those that a room does not let take part, for what is no news of the room. */
  async inRooms(roomIds: Iterable<string>): Promise<Map<string, readonly string[]>> {
    const rooms = await this.#audiences(roomIds);
    return new Map([...rooms].map(([roomId, { servers }]) => [roomId, this.#inReach(servers)]));
  }

  /** Other servers that share a room with each of some local users. @param hidden rooms that do not count */
  ofUsers(
    userIds: readonly string[],
    hidden: ReadonlySet<string> = noRooms,
  ): Promise<Map<string, ReadonlySet<string>>> {
    return this.#ofUsers(userIds, (roomIds) => this.ofRooms(roomIds.filter((roomId) => !hidden.has(roomId))));
  }

  /** {@link ofUsers} with those that the rooms do not let take part: they share them all the same. */
  sharedWith(userIds: readonly string[]): Promise<Map<string, ReadonlySet<string>>> {
    return this.#ofUsers(userIds, (roomIds) => this.inRooms(roomIds));
  }

  /** Those of an audience that may be told. */
  async allowed({ servers, aclId }: Audience): Promise<readonly string[]> {
    if (servers.length === 0) return servers;
    const known = this.#allowed.get(servers);
    if (known && known.aclId === aclId) return known.allowed;
    const acl = aclId === undefined ? undefined : await this.#acl(aclId);
    const allowed = this.#inReach(servers).filter((server) => acl?.allows(server) ?? true);
    this.#allowed.set(servers, { aclId, allowed });
    return allowed;
  }

  /** Which of some rooms let a server take part, by their access control lists. One query, whether they exist or not. */
  async openTo(server: string, roomIds: readonly string[]): Promise<Set<string>> {
    const open = new Set(roomIds);
    for (const [roomId, aclId] of await serverAclsOf(this.database, roomIds)) {
      const acl = await this.#acl(aclId);
      if (acl && !acl.allows(server)) open.delete(roomId);
    }
    return open;
  }

  /** Which of some access control lists, events' ids, let a server take part. */
  async allowing(server: string, aclIds: Iterable<string>): Promise<Set<string>> {
    const allowing = new Set<string>();
    for (const aclId of new Set(aclIds)) if ((await this.#acl(aclId))?.allows(server) ?? true) allowing.add(aclId);
    return allowing;
  }

  /** Whether the settings allow to send to a server, and it is another one. */
  mayReach(server: string): boolean {
    return server !== this.config.serverName && isValidServerName(server) && this.client.allows(server);
  }

  #inReach(servers: readonly string[]): readonly string[] {
    const known = this.#reachable.get(servers);
    if (known) return known;
    const reachable = servers.filter((server) => this.mayReach(server));
    this.#reachable.set(servers, reachable);
    return reachable;
  }

  async #ofUsers(
    userIds: readonly string[],
    audiencesOf: (roomIds: readonly string[]) => Promise<ReadonlyMap<string, readonly string[]>>,
  ): Promise<Map<string, ReadonlySet<string>>> {
    const ofUsers = new Map<string, Set<string>>();
    if (!this.#hasAny) return ofUsers;
    let count = 0;
    for (const some of batchesOf(userIds, usersAtOnce)) {
      if (ofUsers.size > 0) await ownTurn();
      const rooms = await roomsOfLocalUsers(this.database, some);
      const audiences = await audiencesOf([...rooms.values()].flat());
      for (const [userId, roomIds] of rooms) {
        const servers = new Set<string>();
        for (const roomId of roomIds) {
          const audience = audiences.get(roomId) ?? [];
          if ((count += audience.length) > serversPerTurn) {
            await ownTurn();
            count = audience.length;
          }
          for (const server of audience) servers.add(server);
        }
        ofUsers.set(userId, servers);
      }
    }
    return ofUsers;
  }

  async #audiences(roomIds: Iterable<string>): Promise<Map<string, Audience>> {
    if (!this.#hasAny) return new Map();
    const wanted = [...new Set(roomIds)];
    const missing = wanted.filter((roomId) => this.#rooms.get(roomId) === undefined);
    const loading = missing.length > 0 ? this.#load(missing) : undefined;
    if (loading) for (const roomId of missing) this.#enter(roomId, loading);
    const rooms = new Map<string, Audience>();
    for (const roomId of wanted) {
      const entry = (await this.#rooms.get(roomId)) ?? (await loading)?.get(roomId);
      if (entry !== undefined) rooms.set(roomId, entry);
    }
    return rooms;
  }

  #enter(roomId: string, loadingAll: Promise<ReadonlyMap<string, Audience>>): void {
    const loading = loadingAll.then((rooms) => rooms.get(roomId) ?? { servers: [], aclId: undefined });
    this.#rooms.set(roomId, loading);
    loading.then(
      // What a hook has put there meanwhile is newer.
      (audience) => this.#rooms.get(roomId) === loading && this.#rooms.set(roomId, audience),
      () => this.#rooms.get(roomId) === loading && this.#rooms.delete(roomId),
    );
  }

  async #load(roomIds: readonly string[]): Promise<Map<string, Audience>> {
    const acls = await serverAclsOf(this.database, roomIds);
    const servers = new Map<string, string[]>();
    const members = roomIds.length > 1 ? await this.memberships.counts(roomIds) : undefined;
    for (const some of batchesBySize(roomIds, (roomId) => members?.get(roomId)?.joined ?? 1, membersPerTurn)) {
      if (servers.size > 0) await ownTurn();
      for (const [roomId, all] of await serversInRooms(this.database, some)) servers.set(roomId, all);
    }
    return new Map(
      [...servers].map(([roomId, all]) => [
        roomId,
        { servers: all.filter((server) => server !== this.config.serverName), aclId: acls.get(roomId) },
      ]),
    );
  }

  async #acl(eventId: string): Promise<ServerAcl | undefined> {
    const known = this.#acls.get(eventId);
    if (known) return known;
    const stored = await this.events.one(eventId);
    if (!stored) return undefined;
    const acl = serverAclOf(stored.event.content);
    this.#acls.set(eventId, acl);
    return acl;
  }
}
