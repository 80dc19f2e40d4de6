import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { roomVersionRules } from '@rookery/events';
import { domainOf, isJsonObject, type JsonObject, MatrixError, type Membership } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { RemoteRooms } from '../remote-rooms.js';
import { allowedRooms } from '../model/join-rules.js';
import type { StoredEvent } from '../model/stored-event.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomServers } from '../servers/room-servers.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { publicRoom } from './directory.service.js';
import { RemoteLookups } from './remote-lookups.js';
import { selectSummaries, type SummaryRow } from './room-summary.query.js';

/** A room as somebody who is perhaps not in it may see it. */
export interface RoomSummary {
  readonly row: SummaryRow;
  readonly membership: Membership | undefined;
  /** Rooms whose members may join, for restricted rooms. */
  readonly allowedRoomIds: readonly string[] | undefined;
}

/** Looks at rooms from outside. */
@Injectable()
export class RoomSummaries {
  constructor(
    private readonly database: Database,
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly servers: RoomServers,
    private readonly remote: RemoteRooms,
    private readonly config: Config,
    private readonly lookups: RemoteLookups,
  ) {}

  /**
   * A room, if a user, or anybody (`undefined`), may know of it. Of one that everybody here has left others know better.
   * @spec client-server-api#get_matrixclientv1room_summaryroomidoralias
   */
  async visible(userId: string | undefined, roomId: string): Promise<RoomSummary | undefined> {
    return (await this.allVisible(userId, [roomId])).get(roomId);
  }

  /** Those of some rooms that {@link visible} shows, by id. A bounded number of queries. */
  async allVisible(userId: string | undefined, roomIds: readonly string[]): Promise<Map<string, RoomSummary>> {
    const known = [...(await this.known(roomIds)).values()].filter(({ row }) => !isOutOfDate(row));
    if (userId === undefined || known.length === 0) return byId(known.filter(({ row }) => isOpenToAll(row)));
    const memberships = await this.memberships.inRooms(
      userId,
      known.map(({ row }) => row.room_id),
    );
    const rooms = known.map((room) => ({ ...room, membership: memberships.get(room.row.room_id)?.membership }));
    const isOpen = ({ row, membership }: RoomSummary): boolean =>
      membership === 'join' || membership === 'invite' || isOpenToAll(row);
    const closed = rooms.filter((room) => !isOpen(room));
    const theirs = await this.#joinedAmong(
      userId,
      new Set(closed.flatMap(({ allowedRoomIds = [] }) => allowedRoomIds)),
    );
    const isAllowed = ({ allowedRoomIds = [] }: RoomSummary): boolean => allowedRoomIds.some((id) => theirs.has(id));
    return byId(rooms.filter((room) => isOpen(room) || isAllowed(room)));
  }

  /** Those of some rooms whose state this server knows, by id, whoever may know of them. A bounded number of queries. */
  async known(roomIds: readonly string[]): Promise<Map<string, RoomSummary>> {
    const rows = await selectSummaries(this.database, roomIds);
    const restricted = rows.filter(isRestricted).map((row) => row.room_id);
    const events =
      restricted.length === 0
        ? new Map<string, readonly StoredEvent[]>()
        : await this.state.currentOf(restricted, { types: [['m.room.join_rules', '']] });
    return byId(
      rows.map((row) => {
        const content = events.get(row.room_id)?.[0]?.event.content;
        return { row, membership: undefined, allowedRoomIds: content && allowedRooms(content) };
      }),
    );
  }

  /** A room, for another server. {@link allVisibleToServer} */
  async visibleToServer(serverName: string, roomId: string): Promise<RoomSummary | 'unknown' | 'hidden'> {
    return (await this.allVisibleToServer(serverName, [roomId])).get(roomId)!;
  }

  /**
   * Rooms, for another server: `unknown` when this one cannot tell, `hidden` when none of that server's users could see it, or its
   * access control list bars the server. A bounded number of queries.
   * @spec server-server-api#get_matrixfederationv1hierarchyroomid
   */
  async allVisibleToServer(
    serverName: string,
    roomIds: readonly string[],
  ): Promise<Map<string, RoomSummary | 'unknown' | 'hidden'>> {
    const known = await this.known(roomIds);
    const here = await this.servers.among(this.config.serverName, [...known.keys()]);
    const open = await this.servers.openTo(serverName, [...here]);
    const rooms = [...open].map((roomId) => known.get(roomId)!);
    const closed = rooms.filter(({ row }) => !isOpenToAll(row));
    const theirs = await this.servers.among(serverName, [
      ...new Set(closed.flatMap(({ row, allowedRoomIds = [] }) => [row.room_id, ...allowedRoomIds])),
    ]);
    const isTheirs = ({ row, allowedRoomIds = [] }: RoomSummary): boolean =>
      [row.room_id, ...allowedRoomIds].some((roomId) => theirs.has(roomId));
    const others = closed.filter((room) => !isTheirs(room)).map(({ row }) => row.room_id);
    const invited = await this.memberships.invitedTo(others, serverName);
    const hidden = new Set(others.filter((roomId) => !invited.has(roomId)));
    const seen = (roomId: string): RoomSummary | 'unknown' | 'hidden' => {
      if (!here.has(roomId)) return 'unknown';
      return open.has(roomId) && !hidden.has(roomId) ? known.get(roomId)! : 'hidden';
    };
    return new Map(roomIds.map((roomId) => [roomId, seen(roomId)]));
  }

  /** The wire form. */
  write(summary: RoomSummary): JsonObject {
    const { row, membership, allowedRoomIds } = summary;
    return {
      ...publicRoom(row),
      room_version: row.room_version,
      ...(row.encryption !== null && { encryption: row.encryption }),
      ...(membership !== undefined && { membership }),
      ...(allowedRoomIds !== undefined && { allowed_room_ids: allowedRoomIds }),
    };
  }

  /**
   * A room as somebody may see it, from here or from the servers that are named.
   * @param requester absent: anybody
   * @param via asked only for users of this server
   * @throws MatrixError 404 `M_NOT_FOUND`; 429 `M_LIMIT_EXCEEDED` where other servers are to be asked too often
   */
  async one(requester: Requester | undefined, roomId: string, via: readonly string[] = []): Promise<JsonObject> {
    const summary = await this.visible(requester?.userId, roomId);
    // Whoever says who they are is told that they are not in it, too.
    if (summary) return { ...this.write(summary), ...(requester && membershipOrLeave(summary.membership)) };
    const told = requester && (await this.#toldElsewhere(requester, roomId, via));
    if (!told) throw MatrixError.notFound('There is no such room, or you may not see it');
    const { children_state: _, ...shown } = told;
    const membership = (await this.memberships.inRoom(requester.userId, roomId))?.membership;
    return { ...shown, ...membershipOrLeave(membership) };
  }

  /**
   * A room with its children as other servers show it to this one, if a user may know of it; the federation API's form.
   * @spec client-server-api#get_matrixclientv1roomsroomidhierarchy
   */
  async elsewhere(
    userId: string,
    roomId: string,
    via: readonly string[],
    suggestedOnly: boolean,
  ): Promise<JsonObject | undefined> {
    const servers = [...via, domainOf(roomId)];
    const room = (await this.remote.gateway?.directory.hierarchy(roomId, servers, suggestedOnly))?.['room'];
    if (!isJsonObject(room) || room['room_id'] !== roomId) return undefined;
    const { join_rule: rule = 'public', world_readable: isReadable, allowed_room_ids: allowed } = room;
    if (openRules.has(rule) || isReadable === true) return room;
    const membership = (await this.memberships.inRoom(userId, roomId))?.membership;
    if (membership === 'join' || membership === 'invite') return room;
    const allowedIds = Array.isArray(allowed) ? allowed.filter((id) => typeof id === 'string') : [];
    return (await this.#joinedAmong(userId, new Set(allowedIds))).size > 0 ? room : undefined;
  }

  async #toldElsewhere(requester: Requester, roomId: string, via: readonly string[]): Promise<JsonObject | undefined> {
    const servers = [...via, ...((await this.lastSeenIn([roomId])).get(roomId) ?? [])];
    await this.lookups.count([...servers, domainOf(roomId)], requester);
    return this.elsewhere(requester.userId, roomId, servers, false);
  }

  /**
   * Servers that may be in each of some rooms since the last user of this one left it; rooms that are up to date here, or not known, are
   * absent. Who left before all members had come knows of hardly more than who made the room.
   */
  async lastSeenIn(roomIds: readonly string[]): Promise<Map<string, string[]>> {
    const left = (await selectSummaries(this.database, roomIds)).filter(isOutOfDate).map((row) => row.room_id);
    if (left.length === 0) return new Map();
    const [servers, creates] = await Promise.all([
      this.servers.ofAll(left),
      this.state.currentOf(left, { types: [['m.room.create', '']] }),
    ]);
    const creatorOf = (roomId: string): string[] =>
      (creates.get(roomId) ?? []).map(({ event }) => domainOf(event.sender));
    return new Map(left.map((roomId) => [roomId, [...servers.get(roomId)!, ...creatorOf(roomId)]]));
  }

  async #joinedAmong(userId: string, roomIds: ReadonlySet<string>): Promise<ReadonlySet<string>> {
    return new Set(roomIds.size === 0 ? [] : await this.memberships.joinedAmong(userId, [...roomIds]));
  }
}

const byId = (rooms: readonly RoomSummary[]): Map<string, RoomSummary> =>
  new Map(rooms.map((room) => [room.row.room_id, room]));

const membershipOrLeave = (membership: string | undefined): JsonObject => ({ membership: membership ?? 'leave' });

/** Join rules by which everybody may know of a room of another server, which knows its version. */
const openRules: ReadonlySet<unknown> = new Set(['public', 'knock', 'knock_restricted']);

/** Whether nobody of this server is in a room, but maybe others: then what is known of it is what was when the last one left. */
const isOutOfDate = ({ creator, joined_members: joined, local_users_in_room: local }: SummaryRow): boolean =>
  local === 0 && (creator === null || joined > 0);

function isRestricted({ join_rules: rule, room_version: version }: SummaryRow): boolean {
  const known = roomVersionRules(version)?.joinRules;
  return rule === 'restricted' ? !!known?.restricted : rule === 'knock_restricted' && !!known?.knockRestricted;
}

/** A join rule that the room's version does not know lets nobody in, nor knock. */
function isOpenToAll({ join_rules: rule, history_visibility: visibility, room_version: version }: SummaryRow): boolean {
  if (visibility === 'world_readable' || rule === 'public') return true;
  const known = roomVersionRules(version)?.joinRules;
  return rule === 'knock' ? !!known?.knock : rule === 'knock_restricted' && !!known?.knockRestricted;
}

/** Servers that a space names for a child. */
export function viaOf(content: Readonly<JsonObject>): string[] {
  const { via } = content;
  return Array.isArray(via) ? via.filter((server): server is string => typeof server === 'string').slice(0, 20) : [];
}
