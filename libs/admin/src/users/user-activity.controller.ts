import { Controller, Get, Param } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Access, type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { PushersService, pusherContent } from '@rookery/push';
import { UserMemberships } from '@rookery/rooms';
import { AccountDataService, addressesOf, ClientActivity } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';

const sinceQuery = queryOf({ from_ts: param.integer('Since when to count, milliseconds.', { required: true }) });

/** What users are doing: their rooms, their settings, where they come from. */
@Controller()
@AdminAccess()
export class UserActivityController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly memberships: UserMemberships,
    private readonly accountData: AccountDataService,
    private readonly pushers: PushersService,
    private readonly activity: ClientActivity,
    private readonly database: Database,
  ) {}

  /** GET /_synapse/admin/v1/whois/{userId}, for administrators and the user */
  @Get(admin('v1', '/whois/:userId'))
  @Access({ auth: 'required' })
  async whois(@Who() requester: Requester, @Param('userId') text: string): Promise<object> {
    const userId = this.targets.localUserId(text);
    if (!requester.isAdmin && requester.userId !== userId) throw MatrixError.notAdmin();
    await this.activity.flush();
    const addresses = await addressesOf(this.database, userId);
    const connections = addresses.map(({ ip, last_seen, user_agent }) => ({ ip, last_seen, user_agent }));
    return { user_id: userId, devices: { '': { sessions: [{ connections }] } } };
  }

  /** GET /_synapse/admin/v1/users/{userId}/joined_rooms */
  @Get(admin('v1', '/users/:userId/joined_rooms'))
  async joinedRooms(@Param('userId') userId: string): Promise<object> {
    const all = await this.memberships.of(this.targets.userId(userId));
    const joined = [...all].flatMap(([roomId, membership]) => (membership === 'join' ? [roomId] : []));
    return { joined_rooms: joined, total: joined.length };
  }

  /** GET /_synapse/admin/v1/users/{userId}/memberships */
  @Get(admin('v1', '/users/:userId/memberships'))
  async all(@Param('userId') userId: string): Promise<object> {
    return { memberships: Object.fromEntries(await this.memberships.of(this.targets.userId(userId))) };
  }

  /** GET /_synapse/admin/v1/users/{userId}/sent_invite_count */
  @Get(admin('v1', '/users/:userId/sent_invite_count'))
  async sentInvites(
    @Query(sinceQuery) query: InferQuery<typeof sinceQuery>,
    @Param('userId') userId: string,
  ): Promise<object> {
    return { invite_count: await this.memberships.invitesSentSince(this.targets.userId(userId), query.from_ts) };
  }

  /** GET /_synapse/admin/v1/users/{userId}/cumulative_joined_room_count */
  @Get(admin('v1', '/users/:userId/cumulative_joined_room_count'))
  async roomsJoined(
    @Query(sinceQuery) query: InferQuery<typeof sinceQuery>,
    @Param('userId') text: string,
  ): Promise<object> {
    const count = await this.memberships.roomsJoinedSince(this.targets.userId(text), query.from_ts);
    return { cumulative_joined_room_count: count };
  }

  /** GET /_synapse/admin/v1/users/{userId}/accountdata */
  @Get(admin('v1', '/users/:userId/accountdata'))
  @AdminAccess({ largeAnswer: true })
  async accountDataOf(@Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const now = this.accountData.stream.current();
    const [own, ofRooms] = await Promise.all([
      this.accountData.changes(userId, 0, now),
      this.accountData.roomChanges(userId, 0, now),
    ]);
    // Users choose the types, and a plain object hides some names.
    const rooms = new Map<string, [type: string, content: JsonObject][]>();
    const contents = await AccountDataService.parsedContents(ofRooms);
    for (const [index, { roomId, type }] of ofRooms.entries()) {
      const ofRoom = rooms.get(roomId) ?? [];
      ofRoom.push([type, contents[index]!]);
      rooms.set(roomId, ofRoom);
    }
    const ownContents = await AccountDataService.parsedContents(own);
    const entries = own.map(({ type }, index) => [type, ownContents[index]!] as const);
    const perRoom = [...rooms].map(([roomId, ofRoom]) => [roomId, Object.fromEntries(ofRoom)] as const);
    return { account_data: { global: Object.fromEntries(entries), rooms: Object.fromEntries(perRoom) } };
  }

  /** GET /_synapse/admin/v1/users/{userId}/pushers */
  @Get(admin('v1', '/users/:userId/pushers'))
  async pushersOf(@Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const pushers = (await this.pushers.list(userId)).map((one) => ({
      ...pusherContent(one),
      enabled: one.enabled,
      device_id: one.deviceId ?? null,
    }));
    return { pushers, total: pushers.length };
  }
}
