import { Injectable, type OnModuleInit } from '@nestjs/common';
import { serverRequester } from '@rookery/platform';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { EventPersister } from '../pipeline/event-persister.js';
import { type RoomTask, RoomTasks, TaskInterrupted } from '../upkeep/room-tasks.js';
import { redactableEvents, roomsToRedactIn, type RoomSpan } from './user-redactions.query.js';

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

/** What is noted of a task when it begins with a room. */
interface Progress {
  /** The room, and the part of it that holds what is to be redacted there. */
  readonly at?: RoomSpan & { readonly room_id: string };
  /** In the rooms before it; the first of them where there are many. */
  readonly failed_redactions?: Readonly<Record<string, string>>;
}

const action = 'redact_all_events';
/** Most failures that are told one by one. */
const maxFailures = 10_000;
/** Most of them that are noted for whoever goes on: all that is noted is written anew with each room. */
const maxNoted = 200;

/** Redacts what a user said, in the background. */
@Injectable()
export class UserRedactions implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly persister: EventPersister,
    private readonly tasks: RoomTasks,
  ) {}

  onModuleInit(): void {
    this.tasks.define(action, (task, report) => this.#redact(task, report));
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

  /**
   * A room's part is noted before anything in it is redacted. Who goes on after a restart looks there alone: what is redacted by then is not
   * found again, and nothing else takes its place.
   */
  async #redact(task: RoomTask, report: (progress: JsonObject) => Promise<void>): Promise<JsonObject> {
    const { userId, roomIds, sender, reason, ...filter } = task.params as unknown as UserRedactionRequest;
    const { at, failed_redactions: before } = (task.result ?? {}) as Progress;
    const failures: Record<string, string> = { ...before };
    let failed = Object.keys(failures).length;
    const rooms = roomIds.length > 0 ? roomIds : await roomsToRedactIn(this.database, userId);
    for (const roomId of [...new Set(rooms)].sort()) {
      if (at !== undefined && roomId < at.room_id) continue;
      const begun = at?.room_id === roomId ? at : undefined;
      const events = await redactableEvents(this.database, roomId, userId, filter, begun);
      const [newest, oldest] = [events[0], events.at(-1)];
      if (!newest || !oldest) continue;
      const span = { from: oldest.streamOrdering, to: newest.streamOrdering };
      if (!begun) {
        const noted = Object.fromEntries(Object.entries(failures).slice(0, maxNoted));
        await report({ at: { room_id: roomId, ...span }, failed_redactions: noted });
      }
      for (const { eventId } of events) {
        if (this.tasks.stopping) throw new TaskInterrupted();
        const failure = await this.#redactOne(roomId, eventId, sender, reason);
        if (failure !== undefined && failed++ < maxFailures) failures[eventId] = failure;
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
