import { Controller, Get, Param } from '@nestjs/common';
import { Inbound, type InboundRequest, queryBoolean, queryChoice, queryString, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import {
  EventSerializer,
  MembershipReader,
  readerOf,
  RoomLibrary,
  type RoomOrder,
  roomOrders,
  type RoomRow,
  RoomStateReader,
} from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { directionOf, nextFrom, pageOf, searchTerm } from '../http/paging.js';
import { RoomTargets } from './room-targets.js';

/** Names under which two of the orders were known before. */
const olderOrders: Readonly<Record<string, RoomOrder>> = { alphabetical: 'name', size: 'joined_members' };

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
  async list(@Inbound() request: InboundRequest): Promise<object> {
    const page = pageOf(request);
    const order = queryChoice(request, 'order_by', [...roomOrders, ...Object.keys(olderOrders)]) ?? 'name';
    const { rooms, total } = await this.rooms.list({
      orderBy: olderOrders[order] ?? (order as RoomOrder),
      backwards: directionOf(request) === 'b',
      offset: page.from,
      limit: page.limit,
      term: searchTerm(request, 'search_term'),
      isPublic: queryBoolean(request, 'public_rooms'),
      isEmpty: queryBoolean(request, 'empty_rooms'),
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
  async members(@Param('roomId') text: string): Promise<object> {
    const roomId = await this.targets.known(text);
    const members = [...((await this.memberships.joinedUserIds([roomId])).get(roomId) ?? [])];
    return { members, total: members.length };
  }

  /** GET /_synapse/admin/v1/rooms/{roomId}/state */
  @Get(admin('v1', '/rooms/:roomId/state'))
  async currentState(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') text: string,
  ): Promise<object> {
    const roomId = await this.targets.known(text);
    const type = queryString(request, 'type');
    const state = await this.state.current(roomId, type === undefined ? undefined : { types: [[type]] });
    return { state: await this.serializer.serializeState(readerOf(requester), state, { withoutModules: true }) };
  }
}

const listed = (row: RoomRow): object => ({
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
