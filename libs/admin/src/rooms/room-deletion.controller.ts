import { Controller, Delete, Get, Param } from '@nestjs/common';
import { Inbound, type InboundRequest, type Infer, json, JsonBody, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { RoomShutdown, RoomTasks } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { RoomTargets } from './room-targets.js';

type ShutdownRequest = Parameters<RoomShutdown['start']>[1];
type RoomTask = Awaited<ReturnType<RoomTasks['list']>>[number];

const text = json.nullable(json.string({ maxLength: 65_536 }));
const flag = json.boolean();
const schema = json.object({
  new_room_user_id: json.optional(
    'Who makes a room that the members of this server are brought to; there is none unless given.',
    text,
  ),
  room_name: json.optional('What that room is called.', text),
  message: json.optional('What is written into that room.', text),
  block: json.optional('Whether nobody of this server may come in again.', flag),
  purge: json.optional('Whether the room is deleted from the database; it is unless this is `false`.', flag),
  force_purge: json.optional(
    'Whether it is deleted even though members of this server could not be brought out.',
    flag,
  ),
});

type DeletionBody = Infer<typeof schema>;

const deletions: readonly string[] = ['shutdown_and_purge_room', 'purge_room'];

/** Takes rooms off the server. */
@Controller()
@AdminAccess()
export class RoomDeletionController {
  constructor(
    private readonly targets: RoomTargets,
    private readonly users: AdminTargets,
    private readonly shutdown: RoomShutdown,
    private readonly tasks: RoomTasks,
  ) {}

  /**
   * DELETE /_synapse/admin/v1/rooms/{roomId}: answers when it is done, and waits for no other task. It goes on when the client
   * goes away, and after a stop of the server.
   */
  @Delete(admin('v1', '/rooms/:roomId'))
  async now(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(schema) body: DeletionBody,
    @Inbound() { signal }: InboundRequest,
  ): Promise<object> {
    const request = await this.#request(requester, body);
    const id = await this.shutdown.start(this.targets.id(roomId), request, true, { requester, source: 'admin' });
    const task = await this.tasks.outcome(id, signal);
    const result = RoomShutdown.resultOf(task);
    if (task?.status === 'complete') return result;
    if (task?.status === 'active' || task?.status === 'scheduled')
      throw MatrixError.unavailable('The server stops; it goes on with the deletion after its next start');
    if (result.failed_to_kick_users.length > 0)
      throw MatrixError.badRequest('The room is not purged: users of this server could not be removed');
    throw MatrixError.internal('The room could not be deleted');
  }

  /** DELETE /_synapse/admin/v2/rooms/{roomId}: goes on in the background */
  @Delete(admin('v2', '/rooms/:roomId'))
  async later(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(schema) body: DeletionBody,
  ): Promise<object> {
    const request = await this.#request(requester, body);
    return {
      delete_id: await this.shutdown.start(this.targets.id(roomId), request, false, { requester, source: 'admin' }),
    };
  }

  /** GET /_synapse/admin/v2/rooms/{roomId}/delete_status */
  @Get(admin('v2', '/rooms/:roomId/delete_status'))
  async ofRoom(@Param('roomId') text: string): Promise<object> {
    const tasks = (await this.tasks.ofRoom(this.targets.id(text))).filter(({ action }) => deletions.includes(action));
    if (tasks.length === 0) throw MatrixError.notFound('No deletion of this room is known');
    return { results: tasks.map(statusOf) };
  }

  /** GET /_synapse/admin/v2/rooms/delete_status/{deleteId} */
  @Get(admin('v2', '/rooms/delete_status/:deleteId'))
  async one(@Param('deleteId') deleteId: string): Promise<object> {
    const task = await this.tasks.find(deleteId);
    if (!task || !deletions.includes(task.action)) throw MatrixError.notFound('No such deletion is known');
    return statusOf(task);
  }

  async #request(requester: Requester, body: DeletionBody): Promise<ShutdownRequest> {
    const newRoomUserId = body.new_room_user_id ?? undefined;
    if (newRoomUserId !== undefined) {
      const account = await this.users.localAccount(newRoomUserId);
      if (account.deactivated) throw MatrixError.badRequest('The account of new_room_user_id is closed');
    }
    return {
      requesterId: requester.userId,
      newRoomUserId,
      newRoomName: body.room_name ?? undefined,
      message: body.message ?? undefined,
      block: body.block ?? false,
      purge: body.purge ?? true,
      forcePurge: body.force_purge ?? false,
    };
  }
}

const statusOf = (task: RoomTask): JsonObject => ({
  delete_id: task.id,
  room_id: task.roomId,
  status: task.status,
  ...(task.error !== undefined && { error: task.error }),
  shutdown_room: { ...RoomShutdown.resultOf(task) },
});
