import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { PurgeService, RoomBlocking, RoomRepair, RoomTasks } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { RoomJoining } from './room-joining.js';
import { RoomTargets } from './room-targets.js';

const blockSchema = json.object({ block: json.required('Whether nobody of this server may come in.', json.boolean()) });
const joinSchema = json.object({ user_id: json.required('The user of this server who is brought in.', json.string()) });
const newAdminSchema = json.object({
  user_id: json.optional('Who becomes an administrator of the room; whoever asks, unless given.', json.string()),
});
const purgeSchema = json.object({
  delete_local_events: json.optional('Whether events of users of this server are deleted as well.', json.boolean()),
  purge_up_to_event_id: json.optional(
    'What is before this event is deleted.',
    json.nullable(json.string({ maxLength: 255, pattern: '^[^\\u0000]*$' })),
  ),
  purge_up_to_ts: json.optional(
    'What is before this time is deleted, ms since the epoch.',
    json.nullable(json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  ),
});

type PurgeBody = Infer<typeof purgeSchema>;

const joinQuery = queryOf({
  server_name: param.strings('Servers to join through.'),
});

/** Acts on rooms that live on: blocks them, mends them, brings people in, shortens their history. */
@Controller()
@AdminAccess()
export class RoomUpkeepController {
  constructor(
    private readonly targets: RoomTargets,
    private readonly users: AdminTargets,
    private readonly blocking: RoomBlocking,
    private readonly repair: RoomRepair,
    private readonly purge: PurgeService,
    private readonly tasks: RoomTasks,
    private readonly joining: RoomJoining,
  ) {}

  /** GET /_synapse/admin/v1/rooms/{roomId}/block */
  @Get(admin('v1', '/rooms/:roomId/block'))
  async isBlocked(@Param('roomId') roomId: string): Promise<object> {
    const userId = await this.blocking.blockedBy(this.targets.id(roomId));
    return userId === undefined ? { block: false } : { block: true, user_id: userId };
  }

  /** PUT /_synapse/admin/v1/rooms/{roomId}/block */
  @Put(admin('v1', '/rooms/:roomId/block'))
  async block(
    @Who() requester: Requester,
    @Param('roomId') text: string,
    @JsonBody(blockSchema) { block }: Infer<typeof blockSchema>,
  ): Promise<object> {
    const roomId = this.targets.id(text);
    if (block) await this.blocking.block(roomId, requester.userId);
    else await this.blocking.unblock(roomId);
    return { block };
  }

  /** POST /_synapse/admin/v1/rooms/{roomIdOrAlias}/make_room_admin */
  @Post(admin('v1', '/rooms/:roomIdOrAlias/make_room_admin'))
  async makeAdmin(
    @Who() requester: Requester,
    @Param('roomIdOrAlias') room: string,
    @JsonBody(newAdminSchema, { optional: true }) body: Infer<typeof newAdminSchema>,
  ): Promise<object> {
    const { roomId } = await this.targets.byIdOrAlias(room);
    await this.repair.makeAdmin(roomId, this.users.userId(body.user_id ?? requester.userId));
    return {};
  }

  /** GET /_synapse/admin/v1/rooms/{roomIdOrAlias}/forward_extremities */
  @Get(admin('v1', '/rooms/:roomIdOrAlias/forward_extremities'))
  async extremities(@Param('roomIdOrAlias') room: string): Promise<object> {
    const { roomId } = await this.targets.byIdOrAlias(room);
    const results = (await this.repair.forwardExtremities(roomId)).map((each) => ({
      event_id: each.eventId,
      state_group: each.stateGroup,
      depth: each.depth,
      received_ts: each.receivedTs,
    }));
    return { count: results.length, results };
  }

  /** DELETE /_synapse/admin/v1/rooms/{roomIdOrAlias}/forward_extremities */
  @Delete(admin('v1', '/rooms/:roomIdOrAlias/forward_extremities'))
  async dropExtremities(@Param('roomIdOrAlias') room: string): Promise<object> {
    const { roomId } = await this.targets.byIdOrAlias(room);
    return { deleted: await this.repair.dropExtremities(roomId) };
  }

  /** POST /_synapse/admin/v1/join/{roomIdOrAlias} */
  @Post(admin('v1', '/join/:roomIdOrAlias'))
  async join(
    @Who() requester: Requester,
    @Query(joinQuery) query: InferQuery<typeof joinQuery>,
    @Param('roomIdOrAlias') room: string,
    @JsonBody(joinSchema) body: Infer<typeof joinSchema>,
  ): Promise<object> {
    const { userId } = await this.users.localAccount(body.user_id);
    const { roomId, servers } = await this.targets.byIdOrAlias(room, query.server_name);
    await this.joining.bringIn(requester, userId, roomId, servers);
    return { room_id: roomId };
  }

  /** POST /_synapse/admin/v1/purge_history/{roomId}[/{eventId}] */
  @Post([admin('v1', '/purge_history/:roomId'), admin('v1', '/purge_history/:roomId/:eventId')])
  async purgeHistory(
    @Who() requester: Requester,
    @Param() { roomId = '', eventId }: { readonly roomId?: string; readonly eventId?: string },
    @JsonBody(purgeSchema, { optional: true }) body: PurgeBody,
  ): Promise<object> {
    const limit = { eventId: eventId ?? body.purge_up_to_event_id ?? undefined, ts: body.purge_up_to_ts ?? undefined };
    return { purge_id: await this.purge.purgeHistory(roomId, limit, body.delete_local_events ?? false, requester) };
  }

  /** GET /_synapse/admin/v1/purge_history_status/{purgeId} */
  @Get(admin('v1', '/purge_history_status/:purgeId'))
  async purgeStatus(@Param('purgeId') purgeId: string): Promise<object> {
    const task = await this.tasks.find(purgeId);
    if (task?.action !== 'purge_history') throw MatrixError.notFound('No such purge is known');
    const status = task.status === 'scheduled' ? 'active' : task.status;
    return { status, ...(task.error !== undefined && { error: task.error }) };
  }
}
