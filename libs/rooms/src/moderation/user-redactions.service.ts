import { Injectable, type OnModuleInit } from '@nestjs/common';
import { serverRequester } from '@rookery/platform';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { EventPersister } from '../pipeline/event-persister.js';
import { type RoomTask, RoomTasks, TaskInterrupted } from '../upkeep/room-tasks.js';
import { redactableEvents, roomsToRedactIn } from './user-redactions.query.js';

/** Which events of a user are to be redacted, and by whom. */
export interface UserRedactionRequest {
  readonly userId: string;
  /** None: all in which the user is or from which the user is banned. */
  readonly roomIds: readonly string[];
  /** Who sends the redactions: the user, or an administrator who may redact in the rooms. A user of this server. */
  readonly sender: string;
  readonly reason?: string | undefined;
  /** Most events per room, the newest first. */
  readonly limit: number;
  /** Milliseconds since the epoch. */
  readonly beforeTs?: number | undefined;
  readonly afterTs?: number | undefined;
}

const action = 'redact_all_events';
/** Most failures that are told one by one. */
const maxFailures = 10_000;

/** Redacts what a user said, in the background. */
@Injectable()
export class UserRedactions implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly persister: EventPersister,
    private readonly tasks: RoomTasks,
  ) {}

  onModuleInit(): void {
    // What a former run has redacted is not found again, so that a task goes on after a restart.
    this.tasks.define(action, (task) => this.#redact(task));
  }

  /**
   * Starts it.
   * @returns the id of the task; its result holds `failed_redactions`: reasons by event id
   * @throws MatrixError 400 `M_UNKNOWN` while events of this user are being redacted
   */
  async start(request: UserRedactionRequest): Promise<string> {
    const id = await this.tasks.scheduleOnce(action, request.userId, { ...request } as unknown as JsonObject);
    if (id === undefined) throw MatrixError.badRequest('Events of this user are being redacted already');
    return id;
  }

  /** How far one has got; `undefined` when there is none with that id. */
  async find(id: string): Promise<RoomTask | undefined> {
    const task = await this.tasks.find(id);
    return task?.action === action ? task : undefined;
  }

  async #redact(task: RoomTask): Promise<JsonObject> {
    const { userId, roomIds, sender, reason, ...filter } = task.params as unknown as UserRedactionRequest;
    const failures: Record<string, string> = {};
    let failed = 0;
    for (const roomId of roomIds.length > 0 ? roomIds : await roomsToRedactIn(this.database, userId)) {
      for (const redacts of await redactableEvents(this.database, roomId, userId, filter)) {
        if (this.tasks.stopping) throw new TaskInterrupted();
        const failure = await this.#redactOne(roomId, redacts, sender, reason);
        if (failure !== undefined && failed++ < maxFailures) failures[redacts] = failure;
      }
    }
    return { failed_redactions: failures };
  }

  /** @returns why it could not be done */
  async #redactOne(
    roomId: string,
    redacts: string,
    sender: string,
    reason: string | undefined,
  ): Promise<string | undefined> {
    try {
      const content = reason === undefined ? {} : { reason };
      const origin = { requester: serverRequester(sender) };
      await this.persister.send({ roomId, type: 'm.room.redaction', sender, content, redacts, origin });
      return undefined;
    } catch (error) {
      if (MatrixError.is(error)) return error.message;
      throw error;
    }
  }
}
