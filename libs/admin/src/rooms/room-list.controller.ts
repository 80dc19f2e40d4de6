import { Controller, Get, Param } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf, Who, WrittenList } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventSerializer, MembershipReader, RoomLibrary, RoomStateReader } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { direction, nextFrom, pageOf, pageParams, searchTerm } from '../http/paging.js';
import { RoomTargets } from './room-targets.js';

type RoomOrder = (typeof RoomLibrary.orders)[number];

/** Names under which two of the orders were known before. */
const olderOrders: Readonly<Record<string, RoomOrder>> = { alphabetical: 'name', size: 'joined_members' };

const listQuery = queryOf({
  ...pageParams,
  dir: direction,
  search_term: searchTerm('Only rooms with this in their name or alias, or with this id.'),
  order_by: param.choice('What the list is ordered by.', [...RoomLibrary.orders, ...Object.keys(olderOrders)], {
    otherwise: 'name',
  }),
  public_rooms: param.boolean('Only rooms that are published, or that are not.'),
  empty_rooms: param.boolean('Only rooms without members, of whatever server, or with some.'),
});

const currentStateQuery = queryOf({
  type: param.string('Only state events of this type.'),
});

/** Rooms: which there are, and who and what is in them. */
@Controller()
@AdminAccess()
export class RoomListController {
  constructor(
    private readonly rooms: RoomLibrary,
    private readonly targets: RoomTargets,
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly serializer: EventSerializer,
  ) {}

  /** GET /_synapse/admin/v1/rooms */
  @Get(admin('v1', '/rooms'))
  async list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<object> {
    const page = pageOf(query);
    const order = query.order_by;
    const { rooms, total } = await this.rooms.list({
      orderBy: olderOrders[order] ?? (order as RoomOrder),
      backwards: query.dir === 'b',
      offset: page.from,
      limit: page.limit,
      term: query.search_term,
      isPublic: query.public_rooms,
      isEmpty: query.empty_rooms,
    });
    const next = nextFrom(page, total);
    return {
      rooms: rooms.map((row) => listed(row)),
      offset: page.from,
      total_rooms: total,
      ...(next !== undefined && { next_batch: next }),
      ...(page.from > 0 && { prev_batch: Math.max(0, page.from - page.limit) }),
    };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId} */
  @Get(admin('v1', '/rooms/:roomId'))
  async details(@Param('roomId') roomId: string): Promise<object> {
    const room = await this.rooms.details(roomId);
    if (!room) throw MatrixError.noSuchRoom();
    const { topic, avatar, joined_local_devices, forgotten, tombstoned, replacement_room } = room;
    return { ...listed(room), topic, avatar, joined_local_devices, forgotten, tombstoned, replacement_room };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/members */
  @Get(admin('v1', '/rooms/:roomId/members'))
  @AdminAccess({ largeAnswer: true })
  async members(@Param('roomId') text: string): Promise<object> {
    const roomId = await this.targets.known(text);
    const members = new WrittenList();
    for await (const page of this.memberships.joinedMembers(roomId)) members.add(page.map(({ userId }) => userId));
    return { members, total: members.length };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/state */
  @Get(admin('v1', '/rooms/:roomId/state'))
  @AdminAccess({ largeAnswer: true })
  async currentState(
    @Who() requester: Requester,
    @Query(currentStateQuery) query: InferQuery<typeof currentStateQuery>,
    @Param('roomId') text: string,
  ): Promise<object> {
    const roomId = await this.targets.known(text);
    const { type } = query;
    const ids = await this.state.currentIds(roomId, type === undefined ? undefined : { types: [[type]] });
    return { state: await this.serializer.writeState(requester, [...ids.values()], { withoutModules: true }) };
  }
}

const listed = (row: Awaited<ReturnType<RoomLibrary['list']>>['rooms'][number]): object => ({
  room_id: row.room_id,
  name: row.name,
  canonical_alias: row.canonical_alias,
  joined_members: row.joined_members,
  joined_local_members: row.joined_local_members,
  version: row.version,
  creator: row.creator,
  encryption: row.encryption,
  federatable: !!row.federatable,
  public: !!row.public,
  join_rules: row.join_rules,
  guest_access: row.guest_access,
  history_visibility: row.history_visibility,
  state_events: row.state_events,
  room_type: row.room_type,
});
