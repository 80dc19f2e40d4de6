import { Injectable } from '@nestjs/common';
import { Database, type Db } from '@rookery/database';
import { pduText, type RoomEvent } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import {
  type AuthState,
  authTypesFor,
  byAuth,
  checkAuth,
  isCitable,
  powerLevelsOf,
  restsUpon,
  stateKeyOf,
  type StateMap,
} from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { EventGates, type RemoteVerdict } from './event-gates.js';
import { judgeByOwnAuth, type OwnAuth } from './own-auth.js';
import { PolicyServers } from './policy-servers.js';
import { StateCompletion } from './state-completion.js';
import { goThrough, type Stage } from './stage.js';
import { Waiting, withinTurn } from './waiting.js';
import { DraftBuilder } from './draft-builder.js';
import { EventStore } from '../store/event-store.js';
import type { RemoteEvent } from '../model/remote-events.js';
import { EventContexts, groupOf, noState, type StateBefore } from './event-context.js';
import { selectReferenced } from '../room/room-snapshot.query.js';
import type { StagedEvent } from '../room/staged-event.js';
import type { WorkingRoom } from '../room/working-room.js';
import type { StoredEvent } from '../model/stored-event.js';

/** What came of a remote event. */
export type RemoteOutcome =
  | { readonly kind: 'staged'; readonly rejectedReason: string | undefined; readonly softFailed: boolean }
  | { readonly kind: 'known' }
  /** A module that had to judge it failed: nothing is staged. */
  | { readonly kind: 'unjudged' }
  | { readonly kind: 'missing'; readonly eventIds: readonly string[] };

/** Outliers that are looked at, and entries of a state, before others get a turn. */
const [eventsPerTurn, entriesPerTurn] = [500, 5_000];

/** What modules and the room's policy server say about an event. */
export interface RemoteJudgement {
  readonly verdict: RemoteVerdict;
  /** With the policy server's signature, where one was wanted. */
  readonly event: RoomEvent;
  /** It was the policy server that refused it. */
  readonly isSpammy?: boolean;
}

/** What the database says of events that are to be staged one after the other: asked once for all of them. */
export class BatchFacts {
  #referenced: Promise<ReadonlySet<string>> | undefined;

  /** @param stored those of the events that are stored */
  constructor(
    private readonly db: Db,
    private readonly roomId: string,
    private readonly eventIds: readonly string[],
    readonly stored: ReadonlyMap<string, StoredEvent>,
  ) {}

  /** Whether an event that is stored names it as one before it. */
  async isReferenced(eventId: string): Promise<boolean> {
    this.#referenced ??= selectReferenced(this.db, this.roomId, this.eventIds);
    return (await this.#referenced).has(eventId);
  }
}

/** An event of another server on its way: what is known of it, and what its stages have found. */
interface RemoteWay {
  readonly room: WorkingRoom;
  readonly remote: RemoteEvent;
  /** What the database says of it and of those that come with it. */
  readonly facts: BatchFacts;
  /** The state before it, where its ancestors are not known. */
  readonly given: StateBefore | undefined;
  readonly how: 'past' | 'afresh' | undefined;
  /** What modules and the policy server have said already. */
  readonly judgement: RemoteJudgement | undefined;
  /** More events may come with it, and then {@link RemoteStager.settle}. */
  readonly maySettleLater: boolean;
  /** With the policy server's signature, once it has given one. */
  event: RoomEvent;
  /** It was stored as an outlier before. */
  replacesOutlier: boolean;
  /** It follows upon nothing and does not begin the room. */
  isRootless: boolean;
  before: StateBefore;
  stateBefore: AuthState;
  /** Why it is rejected. */
  rejectedReason: string | undefined;
  softFailed: boolean;
  /** The policy server is the reason. */
  isSpammy: boolean;
}

type RemoteStage = Stage<RemoteWay, RemoteOutcome, RemoteJudgement>;

/** Stages events of other servers: auth events, state before, current state. Nothing here throws for what an event says. */
@Injectable()
export class RemoteStager {
  /** The way of an event of another server, after its format, signatures and hash. The README says which check is which. */
  readonly #stages: readonly RemoteStage[] = [
    (way) => this.#skipKnown(way),
    (way) => this.#checkAuthEvents(way),
    (way) => this.#findStateBefore(way),
    (way) => this.#checkStateBefore(way),
    (way) => this.#checkCurrentState(way),
    (way) => this.#askOthers(way),
    (way) => this.#put(way),
  ];

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly builder: DraftBuilder,
    private readonly contexts: EventContexts,
    private readonly gates: EventGates,
    private readonly policies: PolicyServers,
    readonly completion: StateCompletion,
  ) {}

  /**
   * Stages one event with its place in the timeline.
   * @param given the state before it, where its ancestors are not known
   * @param how `past`: it is older than what is known, so it is no extremity and no current state, and neither modules nor
   *   the room's policy server are asked; `afresh`: what was known of the room is out of date and decides nothing
   * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
   */
  async stage(
    room: WorkingRoom,
    remote: RemoteEvent,
    given?: StateBefore,
    how?: 'past' | 'afresh',
  ): Promise<RemoteOutcome> {
    const facts = await this.factsOf(room.roomId, [remote]);
    let judgement: RemoteJudgement | undefined;
    for (;;) {
      const way = wayOf({ room, remote, facts, given, how, judgement, maySettleLater: false });
      const outcome = await goThrough(this.#stages, way);
      if (!(outcome instanceof Waiting)) return outcome;
      judgement = await outcome.answer;
    }
  }

  /**
   * As {@link stage}, without waiting for who thinks: nothing is staged then. Behind the last event comes {@link settle}.
   * @param facts of the batch to which the event belongs
   * @param judgement what was said already
   */
  stageInTurn(
    room: WorkingRoom,
    remote: RemoteEvent,
    facts: BatchFacts,
    judgement: RemoteJudgement | undefined,
  ): Promise<RemoteOutcome | Waiting<RemoteJudgement>> {
    const how = { given: undefined, how: undefined, maySettleLater: true };
    return goThrough(this.#stages, wayOf({ room, remote, facts, judgement, ...how }));
  }

  /** Brings current state up to events that were staged in turn: before anybody else looks at the room. */
  settle(room: WorkingRoom): Promise<void> {
    return this.contexts.settle(room);
  }

  /** Asks for what staging these events one after the other, in the room's turn, will need of each. */
  async factsOf(roomId: string, events: readonly RemoteEvent[]): Promise<BatchFacts> {
    const eventIds = events.map(({ event }) => event.eventId);
    return new BatchFacts(this.database, roomId, eventIds, await this.events.many(eventIds));
  }

  async #skipKnown(way: RemoteWay): Promise<RemoteOutcome | undefined> {
    const { eventId } = way.event;
    const known = way.room.stagedById.get(eventId) ?? way.facts.stored.get(eventId);
    if (known && !known.outlier) return { kind: 'known' };
    way.replacesOutlier = known !== undefined;
    return undefined;
  }

  /** By its own auth events: rejected. */
  async #checkAuthEvents(way: RemoteWay): Promise<RemoteOutcome | undefined> {
    const { room, event, given } = way;
    const { missing, verdict } = await this.#authEvents(room, event);
    way.rejectedReason = verdict.allowed ? undefined : verdict.reason;
    if (missing.length === 0) return undefined;
    const prev = given ? [] : await this.contexts.unknown(room, event.prevEventIds);
    return { kind: 'missing', eventIds: [...new Set([...missing, ...prev])] };
  }

  async #findStateBefore(way: RemoteWay): Promise<RemoteOutcome | undefined> {
    const { room, event, given } = way;
    // Only a room's first event follows upon nothing. Whatever else says so, be it a second first event, is refused where the
    // room stands.
    way.isRootless = event.prevEventIds.length === 0 && !isBeginning(room, event);
    if (way.isRootless && room.extremities.size === 0) return { kind: 'missing', eventIds: [] };
    const before = way.isRootless
      ? await this.contexts.current(room)
      : (given ?? (await this.contexts.before(room, event.prevEventIds)));
    if ('missing' in before) return { kind: 'missing', eventIds: before.missing };
    way.before = before;
    return undefined;
  }

  /** By the state before it: rejected. */
  async #checkStateBefore(way: RemoteWay): Promise<undefined> {
    const { room, event, before } = way;
    way.stateBefore = await this.builder.authState(room, before, authTypesFor(event, room.rules));
    if (way.rejectedReason !== undefined) return;
    let verdict = checkAuth(event, way.stateBefore);
    if (!verdict.allowed && room.isPartial) {
      way.stateBefore = await this.#withClaimed(room, event, before);
      verdict = checkAuth(event, way.stateBefore);
    }
    if (!verdict.allowed) way.rejectedReason = verdict.reason;
    else if (way.isRootless) way.rejectedReason = 'The event follows upon nothing';
  }

  /** By the room's current state: soft-failed. */
  async #checkCurrentState(way: RemoteWay): Promise<undefined> {
    const { room, event, how } = way;
    if (way.rejectedReason !== undefined || how === 'past') return;
    way.softFailed = way.remote.softFail === true || way.judgement?.verdict === 'refused';
    way.isSpammy = way.judgement?.isSpammy === true;
    // There is no current state that could speak against it, or not all of it is here.
    if (room.size === 0 || how === 'afresh' || room.isPartial) return;
    if (isCitable(event.type)) await this.contexts.settle(room);
    // Where what came before is missing current state is old: what was told of the state before counts with it.
    const current = way.given === undefined ? room : await this.#currentWith(room, way.given);
    const now = checkAuth(event, await this.builder.authState(room, current, authTypesFor(event, room.rules)));
    if (!now.allowed) way.softFailed = true;
  }

  /** By modules and the room's policy server: soft-failed. What a module failed to judge is neither good nor bad for ever. */
  async #askOthers(way: RemoteWay): Promise<RemoteOutcome | Waiting<RemoteJudgement> | undefined> {
    const { room, event, how } = way;
    if (way.rejectedReason !== undefined || way.softFailed || how === 'past') return undefined;
    if (way.judgement) return way.judgement.verdict === 'failed' ? { kind: 'unjudged' } : undefined;
    // What the room was like before this server joined says nothing about who approves of events now.
    const asksPolicy = how !== 'afresh' && this.policies.concerns(room, event);
    if (!asksPolicy && !this.gates.active) return undefined;
    await this.contexts.settle(room);
    const still = room.still();
    const seen = this.contexts.asSeen(still, way.before);
    const answer = this.#judge(still, way.remote, seen, asksPolicy).finally(() => still.release());
    const judged = await withinTurn(answer);
    if (judged instanceof Waiting) return judged;
    if (judged.verdict === 'failed') return { kind: 'unjudged' };
    way.softFailed = judged.verdict === 'refused';
    way.isSpammy = judged.isSpammy === true;
    way.event = judged.event;
    return undefined;
  }

  async #put(way: RemoteWay): Promise<RemoteOutcome> {
    const { room, event, before, rejectedReason, softFailed } = way;
    const isAccepted = rejectedReason === undefined;
    const isLive = isAccepted && !softFailed && way.how !== 'past';
    const chain = isAccepted ? await this.contexts.groupAfter(room, before, event) : before.chain;
    const levels = powerLevelsOf(way.stateBefore, room.rules);
    const isRedaction = event.type === 'm.room.redaction' && event.redacts !== undefined;
    room.stage({
      ...stagedAs(event),
      rejectedReason,
      softFailed,
      isSpammy: way.isSpammy,
      onBehalfOf: way.remote.onBehalfOf,
      isHandedOver: way.remote.isHandedOver,
      replacesState: event.stateKey === undefined ? undefined : before.idAt(stateKeyOf(event.type, event.stateKey)),
      group: groupOf(chain),
      redactionRecheck: isRedaction ? levels.user(event.sender) < levels.scalar('redact') : undefined,
      replacesOutlier: way.replacesOutlier,
      fork: isLive && before.chain !== room.chain ? before : undefined,
    });
    if (isLive) {
      const isReferenced = await way.facts.isReferenced(event.eventId);
      await this.contexts.advance(room, event, before, chain, isReferenced, way.maySettleLater);
    }
    return { kind: 'staged', rejectedReason, softFailed };
  }

  async #judge(
    room: WorkingRoom,
    { event, origin = domainOf(event.sender) }: RemoteEvent,
    before: StateBefore,
    asksPolicy: boolean,
  ): Promise<RemoteJudgement> {
    const verdict = this.gates.active ? await this.gates.judgeRemote(room, event, before, origin) : 'allowed';
    if (verdict !== 'allowed' || !asksPolicy) return { verdict, event };
    const approved = await this.policies.checked(room, event);
    return approved ? { verdict, event: approved } : { verdict: 'refused', event, isSpammy: true };
  }

  /**
   * Stages events without a place in the timeline: each is checked against its own auth events. Known ones are skipped, and
   * those whose auth events are not all there: whoever withholds an auth event must not have an event rejected for ever.
   */
  async stageOutliers(room: WorkingRoom, events: readonly RoomEvent[]): Promise<void> {
    const known = await this.events.many(events.map((event) => event.eventId));
    for (const [index, event] of byAuth(events).entries()) {
      // The state of a large room must not hold up the rooms of others.
      if (index % eventsPerTurn === eventsPerTurn - 1) await nextTurn();
      if (known.has(event.eventId) || room.stagedById.has(event.eventId)) continue;
      const auth = await this.#authEvents(room, event);
      if (auth.missing.length > 0) continue;
      const rejectedReason = auth.verdict.allowed ? undefined : auth.verdict.reason;
      room.stage({ ...stagedAs(event), outlier: true, rejectedReason });
    }
  }

  /**
   * Stages a member event of a room in which this server has nobody. A known one is skipped, and one about somebody who has
   * joined meanwhile: they must not look invited for ever.
   */
  async stageOutOfBand(room: WorkingRoom, event: RoomEvent): Promise<void> {
    if (room.base.localMembers.has(event.stateKey ?? '') || (await this.events.one(event.eventId))) return;
    room.stage({ ...stagedAs(event), outlier: true, isOutOfBand: true });
  }

  /** The accepted part of a state that another server told, by key. Its events must be staged or stored. */
  async acceptedState(
    room: Pick<WorkingRoom, 'roomId' | 'stagedById'>,
    state: readonly RoomEvent[],
  ): Promise<StateMap> {
    const stored = new Set<string>();
    const elsewhere = state.flatMap(({ eventId }) => (room.stagedById.has(eventId) ? [] : eventId));
    for await (const entries of this.events.stateEntries(room.roomId, elsewhere))
      for (const { eventId } of entries) stored.add(eventId);
    const accepted = new Map<string, string>();
    for (const [index, { eventId, type, stateKey }] of state.entries()) {
      if (index % entriesPerTurn === entriesPerTurn - 1) await nextTurn();
      const staged = room.stagedById.get(eventId);
      const isAccepted = staged ? staged.rejectedReason === undefined : stored.has(eventId);
      if (isAccepted && stateKey !== undefined) accepted.set(stateKeyOf(type, stateKey), eventId);
    }
    return accepted;
  }

  async #authEvents(room: WorkingRoom, event: RoomEvent): Promise<OwnAuth> {
    const wanted = restsUpon(event).filter((id) => !room.stagedById.has(id));
    const stored = await this.events.many(wanted);
    return judgeByOwnAuth(event, (id) => room.stagedById.get(id) ?? stored.get(id));
  }

  /** The room's current state resolved with another one. */
  async #currentWith(room: WorkingRoom, given: StateBefore): Promise<Pick<StateBefore, 'idAt'>> {
    await this.contexts.settle(room);
    const resolved = await this.contexts.toldWith(room, await this.contexts.current(room), await given.whole());
    return { idAt: (key) => resolved.get(key) ?? room.idAt(key) };
  }

  /**
   * The state before an event, where members may be missing from it, or be there by events that will be rejected (MSC3902): what
   * the event's own auth events say of them is resolved with it, until all of the state is here.
   */
  async #withClaimed(room: WorkingRoom, event: RoomEvent, before: StateBefore): Promise<AuthState> {
    const claimed = new Map<string, string>();
    for (const { type, stateKey, eventId } of (await this.builder.load(room, event.authEventIds)).values())
      if (type === 'm.room.member' && stateKey !== undefined) claimed.set(stateKeyOf(type, stateKey), eventId);
    const resolved = await this.contexts.claimedWith(room, before, claimed);
    const idAt = (key: string): string | undefined => resolved.get(key) ?? before.idAt(key);
    return this.builder.authState(room, { idAt }, authTypesFor(event, room.rules));
  }
}

type GivenWay = 'room' | 'remote' | 'facts' | 'given' | 'how' | 'judgement' | 'maySettleLater';

/** An event at the beginning of its way. */
const wayOf = (from: Pick<RemoteWay, GivenWay>): RemoteWay => ({
  ...from,
  event: from.judgement?.event ?? from.remote.event,
  replacesOutlier: false,
  isRootless: false,
  before: noState,
  stateBefore: () => undefined,
  rejectedReason: undefined,
  softFailed: false,
  isSpammy: false,
});

/** Whether a room begins with an event: it has no beginning yet, or this is the one that it has. */
function isBeginning(room: WorkingRoom, { type, eventId }: RoomEvent): boolean {
  const beginning = room.stateId('m.room.create', '');
  return type === 'm.room.create' && (beginning === undefined || beginning === eventId);
}

const stagedAs = (event: RoomEvent): StagedEvent => ({
  event,
  json: pduText(event),
  outlier: false,
  rejectedReason: undefined,
  softFailed: false,
  transaction: undefined,
  replacesState: undefined,
  group: undefined,
  redactionRecheck: undefined,
  replacesOutlier: false,
  isRemote: true,
});
