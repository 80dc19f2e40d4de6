import { Injectable } from '@nestjs/common';
import { DataStores, type Tx } from '@rookery/database';
import { type RoomEvent, roomVersionRules } from '@rookery/events';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { atEase, Clock, Config } from '@rookery/platform';
import { inAuthOrder, stateKeyOf, type StateMap } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { findSentEvent } from '../store/transactions.query.js';
import { BatchCommitter } from './batch-committer.js';
import { EventPersister } from './event-persister.js';
import type { EventDraft, NewRoom } from '../model/drafts.js';
import type {
  GivenState,
  KnownState,
  RemoteEvent,
  StateAfter,
  StateAtEvent,
  ReceiveVerdict,
} from '../model/remote-events.js';
import { type BatchFacts, type RemoteJudgement, type RemoteOutcome, RemoteStager } from './remote-stager.js';
import { type DraftOutcome, type Judged, LocalStager } from './local-stager.js';
import { insertRoom } from './new-room.query.js';
import { EventContexts, type StateBefore, stateOf } from './event-context.js';
import { type RoomTask, RoomTurns, unknownRoom } from './room-turns.js';
import { Waiting } from './waiting.js';
import { RoomSnapshot } from '../room/room-snapshot.js';
import { RoomSnapshots } from '../room/room-snapshots.js';
import { dropSomeOfGroup, forgetBegunGroup, type PartialJoin, selectBegunGroup } from '../store/partial-rooms.query.js';
import { countDeletion } from '../store/state-database.query.js';
import type { SentEvent, StoredEvent } from '../model/stored-event.js';
import { WorkingRoom } from '../room/working-room.js';

/** Entries of a large state that are stored together: others get a turn in between. */
const entriesAtOnce = 50;
/** Events of a room that are staged before other rooms get a turn. */
const stagedPerTurn = 10;
/** Events around a join, or of a state, that are stored together. */
const eventsAtOnce = 25;
const createKey = stateKeyOf('m.room.create', '');
const maxAttempts = 10;

/** The state that an event was built upon is not the room's any more; as an answer, that it should be tried again. */
class RoomMovedOn extends MatrixError {
  constructor() {
    super(429, 'M_LIMIT_EXCEEDED', 'The room changes too fast', { retry_after_ms: 1000 });
  }
}

/** The persister of the process that writes a room's events. */
@Injectable()
export class LocalEventPersister extends EventPersister {
  #lastCreatedMs = 0;

  // Nine parameters: the stages of an event and what holds a room in memory; this is the one place where they meet.
  constructor(
    private readonly stores: DataStores,
    private readonly snapshots: RoomSnapshots,
    private readonly contexts: EventContexts,
    private readonly local: LocalStager,
    private readonly remote: RemoteStager,
    private readonly committer: BatchCommitter,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly turns: RoomTurns,
  ) {
    super();
  }

  async send(draft: EventDraft): Promise<SentEvent> {
    this.stores.main.onlyAtWriter('an event');
    let judged: Judged | undefined;
    if (!this.local.asksServer(draft)) {
      const sent = await this.#sendInTurn(draft, (room) => this.local.stageInTurn(room, draft));
      if (!(sent instanceof Waiting)) return sent;
      judged = await sent.answer;
    }
    // Who takes time is waited for outside the room's turn, so that one slow answer holds up nobody else. When the room has
    // moved on meanwhile in a way that matters, all are asked again.
    for (let attempt = 1; ; attempt++) {
      const prepared = judged && !('content' in judged) ? judged : await this.#prepareOutside(draft, judged);
      judged = undefined;
      if ('kind' in prepared) return outcomeOf(prepared, new Map(), draft.roomId);
      try {
        const sent = await this.#sendInTurn<never>(draft, async (room) => {
          const outcome = await this.local.stagePrepared(room, draft, prepared);
          if (!outcome) throw new RoomMovedOn();
          return outcome;
        });
        if (!(sent instanceof Waiting)) return sent;
      } catch (error) {
        if (!(error instanceof RoomMovedOn) || attempt === maxAttempts) throw error;
      }
    }
  }

  async #prepareOutside(
    draft: EventDraft,
    judged: { readonly content: JsonObject } | undefined,
  ): ReturnType<LocalStager['prepareWithOthers']> {
    const snapshot = await this.snapshots.get(draft.roomId);
    if (!snapshot) throw unknownRoom();
    const room = WorkingRoom.aside(snapshot);
    try {
      return await this.local.prepareWithOthers(room, draft, judged);
    } finally {
      room.release();
    }
  }

  /** @returns the event once it is durable, or at once that somebody takes time: nothing was staged then */
  #sendInTurn<Answer>(
    draft: EventDraft,
    stage: (room: WorkingRoom) => Promise<DraftOutcome | Waiting<Answer>>,
  ): Promise<SentEvent | Waiting<Answer>> {
    const { transaction } = draft;
    return new Promise((resolve, reject) => {
      this.turns.push(draft.roomId, {
        stage: async (room) => {
          const outcome = await stage(room);
          if (outcome instanceof Waiting) {
            resolve(outcome);
            return undefined;
          }
          return (stored) => resolve(outcomeOf(outcome, stored, draft.roomId));
        },
        ...(transaction && {
          alreadyDone: async () => {
            const sent = await findSentEvent(this.stores.main, draft.roomId, transaction);
            if (sent) resolve(sent);
            return sent !== undefined;
          },
        }),
        reject,
      });
    });
  }

  async createRoom(request: NewRoom): Promise<{ roomId: string; events: SentEvent[] }> {
    this.stores.main.onlyAtWriter('a room');
    const rules = roomVersionRules(request.roomVersion);
    if (!rules) throw MatrixError.unsupportedRoomVersion();
    const { serverName } = this.config;
    const [create, ...rest] = request.drafts;
    const anonymous = new WorkingRoom(new RoomSnapshot(request.roomId ?? '', rules, serverName));
    // Equal create events would be the same room where its id is their hash: no two are made in the same millisecond.
    this.#lastCreatedMs = Math.max(this.clock.nowMs(), this.#lastCreatedMs + 1);
    const first: EventDraft = { ...create!, roomId: anonymous.roomId, originServerTs: this.#lastCreatedMs };
    const built = await this.local.prepare(anonymous, first);
    if ('kind' in built) throw MatrixError.forbidden('The room may not be created');
    const room = new WorkingRoom(new RoomSnapshot(built.event.roomId, rules, serverName));
    const stored = await this.#storeNew(room, request, async () => {
      await this.local.stage(room, first, built);
      for (const [index, draft] of rest.entries()) {
        if (index % stagedPerTurn === stagedPerTurn - 1) await nextTurn();
        await this.local.stageDraft(room, { ...draft, roomId: room.roomId });
      }
    });
    return {
      roomId: room.roomId,
      events: stored.map(({ event, streamOrdering }) => ({
        eventId: event.eventId,
        roomId: room.roomId,
        streamOrdering,
      })),
    };
  }

  async #storeNew(room: WorkingRoom, request: NewRoom, stage: () => Promise<void>): Promise<StoredEvent[]> {
    try {
      await stage();
      const first = async (tx: Tx): Promise<void> => {
        await insertRoom(tx, room.roomId, request);
        await request.inTransaction?.(tx, room.roomId);
      };
      const stored = await this.committer.commit(room, { first });
      this.snapshots.keep(room.base);
      return stored;
    } catch (error) {
      this.contexts.forget(room);
      throw error;
    }
  }

  async receive(roomId: string, events: readonly RemoteEvent[]): Promise<ReceiveVerdict[]> {
    const verdicts: ReceiveVerdict[] = [];
    let judgement: RemoteJudgement | undefined;
    do {
      const { done, thinking } = await this.#receiveInTurn(roomId, events.slice(verdicts.length), judgement);
      verdicts.push(...done);
      // Who takes time is waited for outside the room's turn.
      judgement = await thinking?.answer;
    } while (verdicts.length < events.length);
    return verdicts;
  }

  /**
   * Stores events up to the first one about which a module, or another server, thinks.
   * @param judgement what was said about the first one, where somebody was asked already
   */
  #receiveInTurn(
    roomId: string,
    events: readonly RemoteEvent[],
    judgement: RemoteJudgement | undefined,
  ): Promise<{ readonly done: readonly ReceiveVerdict[]; readonly thinking: Waiting<RemoteJudgement> | undefined }> {
    return new Promise((resolve, reject) => {
      this.turns.push(roomId, {
        stage: async (room) => {
          const outcomes: [RoomEvent, RemoteOutcome][] = [];
          const facts = await this.remote.factsOf(roomId, events);
          const misplaced = new Set<string>();
          let thinking: Waiting<RemoteJudgement> | undefined;
          for (const [index, event] of events.entries()) {
            if (index % stagedPerTurn === stagedPerTurn - 1) await nextTurn();
            // What follows upon an event that has no place has none either, and nobody needs to be asked.
            const outcome =
              lackingOf(event.event, misplaced, facts) ??
              (await this.remote.stageInTurn(room, event, facts, index === 0 ? judgement : undefined));
            if (outcome instanceof Waiting) {
              thinking = outcome;
              break;
            }
            if (outcome.kind === 'missing' || outcome.kind === 'unjudged') misplaced.add(event.event.eventId);
            outcomes.push([event.event, outcome]);
          }
          await this.remote.settle(room);
          return (stored) =>
            resolve({ done: outcomes.map(([event, outcome]) => verdictOf(event, outcome, stored)), thinking });
        },
        reject,
      });
    });
  }

  receiveOutliers(roomId: string, events: readonly RoomEvent[]): Promise<void> {
    return this.#storeOutliers(roomId, undefined, events);
  }

  #storeOutliers(roomId: string, roomVersion: string | undefined, events: readonly RoomEvent[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.turns.push(roomId, {
        ...entering(roomVersion),
        stage: async (room) => {
          const own = events.filter((event) => event.roomId === roomId);
          await this.remote.stageOutliers(room, own);
          return () => resolve();
        },
        reject,
      });
    });
  }

  async receiveWithState(
    roomVersion: string | undefined,
    remote: RemoteEvent,
    given: GivenState,
    partial?: PartialJoin,
  ): Promise<ReceiveVerdict> {
    const { event } = remote;
    await this.#storeAround(event.roomId, roomVersion, given, [event]);
    return new Promise((resolve, reject) => {
      this.turns.push(event.roomId, {
        ...entering(roomVersion),
        stage: async (room) => {
          const accepted = await this.#acceptedOf(room, given, [event]);
          // What is no state of this room must not decide about an event for ever.
          if (!accepted.has(createKey)) {
            return () => resolve({ kind: 'missingAncestors', eventIds: event.prevEventIds });
          }
          const state = await this.contexts.given(room, accepted);
          // Without a member of ours what was known of the room has not been kept up to date.
          const isAfresh = room.base.localMembers.size === 0;
          const extremities = [...room.extremities];
          if (isAfresh) {
            room.extremities.clear();
            room.chain = undefined;
            if (partial) room.partialJoin = { joinEventId: event.eventId, ...partial };
            else if (room.isPartial) room.becomesWhole = true;
          }
          const outcome = await this.remote.stage(room, remote, state, isAfresh ? 'afresh' : undefined);
          // There is no join to await the rest of the state for.
          if (outcome.kind === 'unjudged') room.partialJoin = undefined;
          // Nothing has taken their place.
          if (room.extremities.size === 0)
            for (const [id, extremity] of extremities) room.extremities.set(id, extremity);
          return (stored) => resolve(verdictOf(event, outcome, stored));
        },
        reject,
      });
    });
  }

  /**
   * Stores what another server gave as the state around events, part by part, where it is large: the room goes on in between, and other
   * rooms with it.
   * @param roomVersion of a room that may be made
   */
  async #storeAround(
    roomId: string,
    roomVersion: string | undefined,
    given: GivenState,
    events: readonly RoomEvent[],
  ): Promise<void> {
    if (!('authChain' in given) || !isLarge(given)) return;
    const { state, authChain } = surroundings(roomId, given, events);
    let some: RoomEvent[] = [];
    const store = async (): Promise<void> => {
      await this.#storeOutliers(roomId, roomVersion, some);
      some = [];
      await nextTurn();
    };
    for (const event of inAuthOrder([...authChain, ...state])) if (some.push(event) >= eventsAtOnce) await store();
    if (some.length > 0) await store();
  }

  /** @returns `undefined` where an event is named after which no state is known */
  async #stateBefore(
    room: WorkingRoom,
    given: GivenState | StateAfter,
    events: readonly RoomEvent[],
  ): Promise<StateBefore | undefined> {
    if (!('after' in given)) return this.contexts.given(room, await this.#acceptedOf(room, given, events));
    const state = await this.contexts.before(room, [given.after]);
    return 'missing' in state ? undefined : state;
  }

  /** The accepted part of a state that another server gave. A small one, of which nothing was stored before, is staged. */
  async #acceptedOf(room: WorkingRoom, given: GivenState, events: readonly RoomEvent[]): Promise<StateMap> {
    if (!('authChain' in given)) return given.state;
    const { state, authChain } = surroundings(room.roomId, given, events);
    if (!isLarge(given)) await this.remote.stageOutliers(room, [...authChain, ...state]);
    return this.remote.acceptedState(room, state);
  }

  async completeState(
    roomId: string,
    joinEventId: string,
    given: KnownState,
    earlier: ReadonlyMap<string, KnownState> = new Map(),
    signal?: AbortSignal,
  ): Promise<boolean> {
    if (!given.state.has(createKey)) return false;
    const group = await this.#storeInParts(roomId, joinEventId, given.state, signal);
    if (typeof group !== 'number') return group === 'over';
    return this.#inTurn(roomId, async (room) => {
      if (!this.#awaits(room, joinEventId)) return true;
      room.becomesWhole = true;
      room.missedServers = missedIn(room, given.servers);
      const before = new Map([[joinEventId, this.contexts.stored(room, group, given.state)]]);
      for (const [eventId, { state }] of earlier)
        if (state.has(createKey)) before.set(eventId, await this.contexts.given(room, state));
      if (await this.remote.completion.restage(room, joinEventId, before)) return true;
      // Nothing of it is written.
      room.rejudged = undefined;
      return false;
    });
  }

  /**
   * Stores all of the state before a join, and adds the members in it to the room's, part by part: the room goes on in between, and
   * other rooms with it.
   * @returns the group; `refused` when the join does not stand in that state, `over` when nobody waits for it any more
   */
  async #storeInParts(
    roomId: string,
    joinEventId: string,
    state: StateMap,
    signal: AbortSignal | undefined,
  ): Promise<number | 'refused' | 'over'> {
    await this.#dropBegun(roomId, joinEventId, signal);
    let group: number | undefined;
    for (const rows of parts(state)) {
      signal?.throwIfAborted();
      const store = async (room: WorkingRoom): Promise<'stored' | 'refused' | 'over'> => {
        if (!this.#awaits(room, joinEventId)) return 'over';
        const isFirst = group === undefined;
        if (isFirst && !(await this.remote.completion.stands(room, joinEventId, stateOf(state)))) return 'refused';
        group ??= await this.contexts.newGroup();
        await this.contexts.find(room, rows);
        room.found = { group, begins: isFirst ? joinEventId : undefined, rows };
        return 'stored';
      };
      const outcome = await atEase(this.clock, signal, () => this.#inTurn(roomId, store));
      if (outcome !== 'stored') return outcome;
    }
    return group ?? 'refused';
  }

  /** Takes away what somebody began to store of a room's state, who was killed or found that it cannot be the state. */
  async #dropBegun(roomId: string, joinEventId: string, signal: AbortSignal | undefined): Promise<void> {
    // For another join by now, somebody may be storing the state before that one.
    if (!this.#counts(roomId, joinEventId)) return;
    const { main, state, isSplit } = this.stores;
    const group = await selectBegunGroup(main, roomId);
    if (group === undefined) return;
    const name = 'drop_partial_group';
    const forget = (tx: Tx): Promise<void> => forgetBegunGroup(tx, roomId, group);
    // Elsewhere nothing goes that is still named here; what a kill leaves there the collector takes away.
    if (isSplit) await main.write(forget, { name });
    const drop = (): Promise<boolean> =>
      state.write(
        async (tx) => {
          if (isSplit) await countDeletion(tx);
          const isLeft = await dropSomeOfGroup(tx, group, entriesAtOnce);
          if (!isLeft && !isSplit) await forget(tx);
          return isLeft;
        },
        { name },
      );
    while (await atEase(this.clock, signal, drop)) signal?.throwIfAborted();
  }

  /** Does something with a room in its turn, in a transaction of its own. */
  #inTurn<T>(roomId: string, work: (room: WorkingRoom) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.turns.push(roomId, {
        options: { alone: true },
        stage: async (room) => {
          const answer = await work(room);
          return () => resolve(answer);
        },
        reject,
      });
    });
  }

  async abandonState(roomId: string, joinEventId: string, signal?: AbortSignal): Promise<boolean> {
    await this.#dropBegun(roomId, joinEventId, signal);
    return this.#inTurn(roomId, (room) => {
      if (!this.#awaits(room, joinEventId)) return Promise.resolve(true);
      if (room.base.localMembers.size > 0) return Promise.resolve(false);
      room.becomesWhole = true;
      // Members have become known that the groups of its events do not say.
      room.chain = undefined;
      room.missedServers = [];
      room.rejudge(new Map());
      return Promise.resolve(true);
    });
  }

  #awaits(room: WorkingRoom, joinEventId: string): boolean {
    return room.isPartial && this.#counts(room.roomId, joinEventId);
  }

  #counts(roomId: string, joinEventId: string): boolean {
    return this.snapshots.partial.get(roomId)?.joinEventId === joinEventId;
  }

  async backfill(roomId: string, events: readonly RoomEvent[], given?: GivenState | StateAfter): Promise<void> {
    if (given && !('after' in given)) await this.#storeAround(roomId, undefined, given, events);
    return new Promise((resolve, reject) => {
      this.turns.push(roomId, {
        options: { backfilled: true },
        stage: async (room) => {
          const state = given && (await this.#stateBefore(room, given, events));
          for (const [index, event] of events.entries()) {
            if (index % stagedPerTurn === stagedPerTurn - 1) await nextTurn();
            await this.remote.stage(room, { event }, index === 0 ? state : undefined, 'past');
          }
          return () => resolve();
        },
        reject,
      });
    });
  }

  async receiveOutOfBand(roomVersion: string, event: RoomEvent): Promise<void> {
    const { membership } = event.content;
    const begins = membership === 'invite' || membership === 'knock';
    return new Promise((resolve, reject) => {
      this.turns.push(event.roomId, {
        ...(begins ? { roomVersion } : { options: {} }),
        stage: async (room) => {
          await this.remote.stageOutOfBand(room, event);
          return () => resolve();
        },
        reject,
      });
    });
  }

  keepNewestExtremity(draft: EventDraft): Promise<number> {
    return new Promise((resolve, reject) => {
      this.turns.push(draft.roomId, {
        stage: async (room) => {
          const dropped = room.extremities.size - 1;
          if (dropped > 0) await this.local.stageOnNewestExtremity(room, draft);
          return () => resolve(Math.max(0, dropped));
        },
        reject,
      });
    });
  }

  exclusively<T>(roomId: string, work: () => Promise<T>): Promise<T> {
    return this.turns.exclusively(roomId, work);
  }
}

/**
 * How something is done that comes from what another server tells of a room.
 * @param roomVersion where somebody comes in: the room is made. What is merely fetched must not bring back a room that was deleted meanwhile.
 */
const entering = (roomVersion: string | undefined): Pick<RoomTask, 'roomVersion' | 'isVersionProven' | 'options'> =>
  roomVersion === undefined ? { options: {} } : { roomVersion, isVersionProven: true };

/** A state in parts that are made one by one. */
function* parts(state: StateMap): Generator<StateMap> {
  let part = new Map<string, string>();
  for (const [key, eventId] of state) {
    part.set(key, eventId);
    if (part.size < entriesAtOnce) continue;
    yield part;
    part = new Map();
  }
  if (part.size > 0) yield part;
}

/** Servers with a member in a state that was not known, or in the room by now, that nobody has named before. */
function missedIn({ base }: WorkingRoom, servers: ReadonlySet<string>): string[] {
  const missed = new Set([...base.memberServers, ...servers]);
  missed.delete(base.serverName);
  return [...missed].filter((server) => !base.partialServers?.has(server));
}

/** Whether a state that another server gave is stored part by part, before the event that it is for. */
const isLarge = ({ state, authChain }: StateAtEvent): boolean => state.length + authChain.length > eventsAtOnce;

/** What another server gave as the state around events, without those events themselves and without other rooms. */
function surroundings(roomId: string, given: StateAtEvent, events: readonly RoomEvent[]): StateAtEvent {
  const isAround = (each: RoomEvent): boolean =>
    each.roomId === roomId && !events.some((event) => event.eventId === each.eventId);
  return { state: given.state.filter(isAround), authChain: given.authChain.filter(isAround) };
}

/** What an event lacks of a batch in which some events could not be placed. */
function lackingOf(
  { eventId, prevEventIds, authEventIds }: RoomEvent,
  misplaced: ReadonlySet<string>,
  { stored }: BatchFacts,
): Extract<RemoteOutcome, { kind: 'missing' }> | undefined {
  if (misplaced.size === 0 || stored.has(eventId)) return undefined;
  const eventIds = [...new Set([...authEventIds, ...prevEventIds])].filter((id) => misplaced.has(id));
  return eventIds.length === 0 ? undefined : { kind: 'missing', eventIds };
}

function outcomeOf(outcome: DraftOutcome, stored: ReadonlyMap<string, StoredEvent>, roomId: string): SentEvent {
  if (outcome.kind === 'dropped') return { eventId: outcome.eventId, roomId, streamOrdering: 0 };
  const { eventId } = outcome.event;
  return { eventId, roomId, streamOrdering: stored.get(eventId)?.streamOrdering ?? 0 };
}

function verdictOf(event: RoomEvent, outcome: RemoteOutcome, stored: ReadonlyMap<string, StoredEvent>): ReceiveVerdict {
  if (outcome.kind === 'known' || outcome.kind === 'unjudged') return outcome;
  if (outcome.kind === 'missing') return { kind: 'missingAncestors', eventIds: outcome.eventIds };
  if (outcome.rejectedReason !== undefined) return { kind: 'rejected', reason: outcome.rejectedReason };
  if (outcome.softFailed) return { kind: 'softFailed' };
  return { kind: 'accepted', stored: stored.get(event.eventId)! };
}
