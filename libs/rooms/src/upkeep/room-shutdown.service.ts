import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, isTransient } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { eachLimit, Logger, type Requester, serverRequester } from '@rookery/platform';
import { deleteAliasesOf, moveAliases, selectAliasesOf } from '../directory/alias.query.js';
import { setPublished } from '../directory/directory.query.js';
import { hasLocalMember } from '../membership/membership.query.js';
import { LeaveService } from '../membership/leave.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';
import { PurgeService } from './purge.service.js';
import { type Replacement, ReplacementRooms } from './replacement-rooms.js';
import { RoomBlocking } from './room-blocking.service.js';
import { type RoomTask, RoomTasks, TaskInterrupted } from './room-tasks.js';
import { selectLocalUsers } from '../reading/local-members.query.js';

/** How a room is taken off the server. */
export interface ShutdownRequest extends Replacement {
  /** The administrator. */
  readonly requesterId: string;
  /** Nobody of this server may join again. */
  readonly block: boolean;
  /** Delete it from the database. */
  readonly purge: boolean;
  /** Delete it even when somebody could not be removed. */
  readonly forcePurge: boolean;
}

/** What a shutdown did so far, in the words of the admin API: the tasks' table and their list show it as it is. */
export interface ShutdownResult {
  readonly kicked_users: readonly string[];
  readonly failed_to_kick_users: readonly string[];
  readonly local_aliases: readonly string[];
  readonly new_room_id: string | null;
}

const parallelLeaves = 8;
/** How often it is noted, while people are removed, who has been. */
const maxReports = 50;
/** How often everybody is removed again when somebody has returned before the room could be purged. */
const maxAttempts = 3;

/** Takes rooms off the server: everybody leaves, nobody returns, and, if asked, nothing stays. */
@Injectable()
export class RoomShutdown implements OnModuleInit {
  /** What a task has done of a shutdown so far: nothing where there is none. */
  static resultOf(task: RoomTask | undefined): ShutdownResult {
    const nothing = { kicked_users: [], failed_to_kick_users: [], local_aliases: [], new_room_id: null };
    return { ...nothing, ...(task?.result as Partial<ShutdownResult> | undefined) };
  }

  // Nine parameters: whether it may be, who leaves, where they go and what is purged each is another service, and a task
  // goes on after a restart.
  constructor(
    private readonly database: Database,
    private readonly blocking: RoomBlocking,
    private readonly leaves: LeaveService,
    private readonly forgetting: RoomForgetting,
    private readonly replacements: ReplacementRooms,
    private readonly modules: ModuleDispatcher,
    private readonly purge: PurgeService,
    private readonly tasks: RoomTasks,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.tasks.define('shutdown_and_purge_room', async (task, report) => {
      const request = task.params as unknown as ShutdownRequest;
      const before = task.result as unknown as ShutdownResult | undefined;
      const tell = (done: ShutdownResult): Promise<void> => report({ ...done });
      let result = await this.#shutdown(task, request, before, tell);
      for (let attempt = 1; request.purge && !(await this.#purge(task.roomId, request, result)); attempt++) {
        if (attempt === maxAttempts) {
          await tell({ ...result, failed_to_kick_users: await selectLocalUsers(this.database, task.roomId, ['join']) });
          throw new Error('Some users keep returning to the room');
        }
        result = await this.#shutdown(task, request, result, tell);
      }
      return { ...result } as JsonObject;
    });
  }

  /**
   * Starts a shutdown in the background. The room is blocked at once, where that is asked for, even if it is refused for
   * being deleted already.
   * @param isAwaited somebody waits for its end
   * @param by who wants it, for modules; by default a job of the server
   * @returns the id of the task; its result is a {@link ShutdownResult}
   * @throws MatrixError 400 `M_UNKNOWN` when the room is being deleted already, 403 `M_FORBIDDEN` when a module refuses
   */
  async start(
    roomId: string,
    request: ShutdownRequest,
    isAwaited = false,
    by: { readonly requester?: Requester; readonly source: 'admin' | 'module' | 'server' } = { source: 'server' },
  ): Promise<string> {
    const { requester, source } = by;
    const context = callbackContext(requester, { source });
    assertAllowed(await this.modules.gate('checkCanShutdownRoom', context, requester?.userId, roomId));
    if (request.block) await this.blocking.block(roomId, request.requesterId);
    const id = await this.tasks.scheduleOnce('shutdown_and_purge_room', roomId, { ...request }, isAwaited);
    if (id === undefined) throw MatrixError.badRequest('The room is being deleted already');
    return id;
  }

  /** @returns `false` when somebody has returned in the meantime */
  async #purge(roomId: string, request: ShutdownRequest, result: ShutdownResult): Promise<boolean> {
    if (request.forcePurge) return this.purge.purgeRoom(roomId);
    if (result.failed_to_kick_users.length > 0) throw new Error('Some users could not be removed from the room');
    return this.purge.purgeRoom(roomId, async () => !(await hasLocalMember(this.database, roomId)));
  }

  async #shutdown(
    { id: taskId, roomId }: RoomTask,
    request: ShutdownRequest,
    before: ShutdownResult | undefined,
    report: (result: ShutdownResult) => Promise<void>,
  ): Promise<ShutdownResult> {
    let newRoomId = before?.new_room_id ?? undefined;
    const kicked = new Set(before?.kicked_users);
    const failed = new Set<string>();
    const localAliases = before?.local_aliases ?? (await selectAliasesOf(this.database, roomId));
    const soFar = (): ShutdownResult => ({
      kicked_users: [...kicked],
      failed_to_kick_users: [...failed],
      local_aliases: localAliases,
      new_room_id: newRoomId ?? null,
    });
    // It is noted with the new room: whoever goes on does not make another.
    newRoomId ??= await this.replacements.make(request, (tx, made) =>
      this.tasks.noteIn(tx, taskId, { ...soFar(), new_room_id: made }),
    );
    await report(soFar());
    if (newRoomId !== undefined) await this.replacements.explain(request, newRoomId, taskId);
    const pending = await selectLocalUsers(this.database, roomId, ['join', 'invite', 'knock']);
    const reportEvery = Math.ceil(pending.length / maxReports);
    let removed = 0;
    // One after the other, so that what is older does not come later.
    let noting = Promise.resolve();
    const remove = async (userId: string): Promise<void> => {
      if (await this.#remove(roomId, userId, newRoomId)) kicked.add(userId);
      else failed.add(userId);
      // All of them are named each time: in a large room not after everybody.
      if (++removed % reportEvery === 0) await (noting = noting.then(() => report(soFar())));
    };
    await eachLimit(pending, parallelLeaves, remove, { while: () => !this.tasks.stopping });
    if (this.tasks.stopping) {
      await report(soFar());
      throw new TaskInterrupted();
    }
    await this.database.write(
      async (tx) => {
        if (newRoomId !== undefined) await moveAliases(tx, roomId, newRoomId);
        else await deleteAliasesOf(tx, roomId);
        await setPublished(tx, roomId, false);
      },
      { name: 'shut_room_down' },
    );
    await report(soFar());
    return soFar();
  }

  /** Makes a user join the new room and leave the old one: after a crash in between, the user is found and goes again. */
  async #remove(roomId: string, userId: string, newRoomId: string | undefined): Promise<boolean> {
    try {
      if (newRoomId !== undefined) await this.replacements.bring(userId, newRoomId);
      await this.leaves.leave(serverRequester(userId), roomId, { unchecked: true });
      await this.forgetting.forgetLeft(userId, roomId);
      return true;
    } catch (error) {
      if (isTransient(error)) throw error;
      // Whatever it is, the others go: a room of which half is gone already must not be there for ever.
      if (!MatrixError.is(error))
        this.logger.warn('A user could not be removed from a room', { roomId, userId, err: error });
      return false;
    }
  }
}
