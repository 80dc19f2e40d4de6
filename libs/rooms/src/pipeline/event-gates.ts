import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import {
  callbackContext,
  type GateVerdict,
  ModuleDispatcher,
  refusalError,
  type StateReader,
  toModuleDraft,
  toModuleEvent,
  toStateView,
} from '@rookery/module-host';
import { splitStateKey, stateKeyOf } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { DraftOrigin, EventDraft } from '../model/drafts.js';
import type { StateBefore } from './event-context.js';
import type { WorkingRoom } from '../room/working-room.js';

/** What modules say about an event of another server; `failed`: one of them had to say something and could not. */
export type RemoteVerdict = 'allowed' | 'refused' | 'failed';

/** Asks the modules about events before they are stored. */
@Injectable()
export class EventGates {
  constructor(
    private readonly modules: ModuleDispatcher,
    private readonly events: EventStore,
  ) {}

  /** Whether any module wants to see events. */
  get active(): boolean {
    return this.transforms || this.judges;
  }

  /** Whether third-party rules want to see drafts. */
  get transforms(): boolean {
    return this.modules.has('checkEventAllowed');
  }

  /** Whether spam checkers want to see finished events. */
  get judges(): boolean {
    return this.modules.has('checkEventForSpam');
  }

  /**
   * Lets third-party rules see a draft, and change its content; one that a module sends only those of others.
   * @throws MatrixError when a module refuses
   */
  async transform(room: WorkingRoom, draft: EventDraft, before: StateBefore, nowMs: number): Promise<JsonObject> {
    const given = toModuleDraft({
      roomId: room.roomId,
      roomVersion: room.rules.version,
      type: draft.type,
      stateKey: draft.stateKey,
      sender: draft.sender,
      content: draft.content,
      originServerTs: draft.originServerTs ?? nowMs,
      redacts: draft.redacts,
    });
    const view = toStateView(new StateOfPlace(this.events, room, before));
    const { unchecked: by, origin } = draft;
    const verdict =
      typeof by === 'object'
        ? await this.modules.transformByOthers(by, 'checkEventAllowed', contextOfModule(draft), given, view)
        : await this.modules.transform('checkEventAllowed', context(origin), given, view);
    if (!verdict.allowed) throw refusalError(verdict);
    return verdict.value === given ? draft.content : verdict.value.content;
  }

  /** What spam checkers say about a finished event. */
  spam(event: RoomEvent, origin?: DraftOrigin): Promise<GateVerdict> {
    return this.modules.gate('checkEventForSpam', context(origin), toModuleEvent(event));
  }

  /**
   * What third-party rules and spam checkers say about an event of another server.
   * @param origin the server that sent it
   */
  async judgeRemote(room: WorkingRoom, event: RoomEvent, before: StateBefore, origin: string): Promise<RemoteVerdict> {
    if (!this.active) return 'allowed';
    const remote = callbackContext(undefined, { source: 'federation', origin });
    const given = toModuleEvent(event);
    if (this.transforms) {
      const view = toStateView(new StateOfPlace(this.events, room, before));
      const verdict = await this.modules.transform('checkEventAllowed', remote, given, view);
      if (!verdict.allowed) return verdict.failed ? 'failed' : 'refused';
    }
    const verdict = await this.modules.gate('checkEventForSpam', remote, given);
    if (verdict.allowed) return 'allowed';
    return verdict.failed ? 'failed' : 'refused';
  }
}

/** The state at a place in a room, staged events included. */
class StateOfPlace implements StateReader {
  constructor(
    private readonly events: EventStore,
    private readonly room: WorkingRoom,
    private readonly before: StateBefore,
  ) {}

  async get(type: string, stateKey: string): Promise<RoomEvent | undefined> {
    const id = this.before.idAt(stateKeyOf(type, stateKey));
    return id === undefined ? undefined : (await this.#load([id]))[0];
  }

  async ofType(type: string): Promise<RoomEvent[]> {
    const whole = await this.before.whole();
    return this.#load([...whole].filter(([key]) => splitStateKey(key)[0] === type).map(([, id]) => id));
  }

  async all(): Promise<RoomEvent[]> {
    return this.#load([...(await this.before.whole()).values()]);
  }

  async #load(ids: readonly string[]): Promise<RoomEvent[]> {
    const { stagedById } = this.room;
    const stored = await this.events.events(ids.filter((id) => !stagedById.has(id)));
    return ids.flatMap((id) => stagedById.get(id)?.event ?? stored.get(id) ?? []);
  }
}

const context = (origin: DraftOrigin | undefined): ReturnType<typeof callbackContext> =>
  callbackContext(origin?.requester, origin);

const contextOfModule = ({ sender: userId, origin }: EventDraft): ReturnType<typeof callbackContext> =>
  callbackContext(origin?.requester, { ...origin, userId, source: 'module' });
