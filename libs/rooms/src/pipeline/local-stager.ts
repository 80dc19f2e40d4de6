import { Injectable } from '@nestjs/common';
import { pduText, type RoomEvent, stripped } from '@rookery/events';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { type GateVerdict, refusalError } from '@rookery/module-host';
import { Clock } from '@rookery/platform';
import { authTypesFor, checkAuth, stateKeyOf } from '@rookery/state-res';
import { RemoteRooms } from '../remote-rooms.js';
import { EventGates } from './event-gates.js';
import { PolicyServers } from './policy-servers.js';
import { LRUCache } from 'lru-cache';
import { goThrough, type Stage } from './stage.js';
import { Waiting, withinTurn } from './waiting.js';
import { type BuiltEvent, DraftBuilder, type PlaceOfDraft } from './draft-builder.js';
import { type EventDraft, StateMovedOn } from '../model/drafts.js';
import { EventContexts, groupOf, noState } from './event-context.js';
import { PrejoinState } from './prejoin-state.js';
import type { WorkingRoom } from '../room/working-room.js';

/** What came of a draft. */
export type DraftOutcome =
  /** Staged; durable with the batch. */
  | { readonly kind: 'staged'; readonly event: RoomEvent }
  /** The state is as wanted already. */
  | { readonly kind: 'unchanged'; readonly event: RoomEvent }
  /** A module wants it to look sent, and go nowhere. */
  | { readonly kind: 'dropped'; readonly eventId: string };

/** What of a draft's way is behind it: the content as modules left it, the event they allowed, or the end. */
export type Judged = { readonly content: JsonObject } | BuiltEvent | Exclude<DraftOutcome, { kind: 'staged' }>;

type Prepared = Exclude<Judged, { content: JsonObject }>;

/** A draft on its way to an event: what its stages have made of it. */
interface DraftWay {
  readonly room: WorkingRoom;
  readonly draft: EventDraft;
  /** Others of the room wait: who takes time is not waited for. */
  readonly inTurn: boolean;
  /** As third-party rules left it, once they have been asked. */
  content: JsonObject | undefined;
  place: PlaceOfDraft;
  built: BuiltEvent | undefined;
}

type DraftStage = Stage<DraftWay, Prepared, Judged>;

/** Stages events of local users: draft, third-party rules, format and hash, auth rules, spam checkers, signature. */
@Injectable()
export class LocalStager {
  /** Events that were built lately and may not be stored yet, each with the last time that was given to one like it. */
  readonly #built = new LRUCache<string, { lastTs: number }>({ maxSize: 20_000, sizeCalculation: () => 1 });

  /** The way of a draft to an event that everybody agreed to. The README says what each stage is for. */
  readonly #stages: readonly DraftStage[] = [
    (way) => this.#place(way),
    (way) => this.#askThirdPartyRules(way),
    (way) => this.#build(way),
    (way) => this.#askSpamCheckers(way),
    (way) => this.#askPolicyServer(way),
  ];

  constructor(
    private readonly builder: DraftBuilder,
    private readonly contexts: EventContexts,
    private readonly gates: EventGates,
    private readonly policies: PolicyServers,
    private readonly prejoin: PrejoinState,
    private readonly remote: RemoteRooms,
    private readonly clock: Clock,
  ) {}

  /** Whether another server is asked about a draft, which takes its time: that of somebody invited. */
  asksServer({ type, stateKey, sender, content }: EventDraft): boolean {
    if (type !== 'm.room.member' || content['membership'] !== 'invite' || stateKey === undefined) return false;
    return this.remote.gateway !== undefined && domainOf(stateKey) !== domainOf(sender);
  }

  /**
   * {@link prepare} outside the room's turn, and where somebody of another server is invited that server's signature.
   * @param judged how far the draft got in the room's turn; what modules said by then counts
   * @throws MatrixError what modules or that server refuse with
   */
  async prepareWithOthers(
    room: WorkingRoom,
    draft: EventDraft,
    judged?: { readonly content: JsonObject },
  ): Promise<Prepared> {
    const built = await this.prepare(room, draft, judged?.content);
    if ('kind' in built || !this.asksServer(draft)) return built;
    const shown = (await this.#prejoinEvents(room, built.event)).map(({ pdu }) => pdu);
    const { gateway } = this.remote;
    if (!gateway) throw MatrixError.forbidden('Nobody of another server can be invited');
    const event = await gateway.membership.invite(this.builder.sign(built.event), shown);
    if (event.eventId !== built.event.eventId) throw MatrixError.forbidden('The other server has changed the invite');
    return { ...built, event, signed: undefined };
  }

  /**
   * Builds an event on top of the room and lets the modules and the room's policy server judge it. Stages nothing.
   * @param content as third-party rules left it, where they were asked already
   * @throws MatrixError 403 and what else {@link DraftBuilder.build}, modules and {@link PolicyServers.approved} throw
   */
  async prepare(room: WorkingRoom, draft: EventDraft, content?: JsonObject): Promise<Prepared> {
    const prepared = await goThrough(this.#stages, wayOf(room, draft, false, content));
    if (prepared instanceof Waiting) throw new Error('Outside of a turn everybody is waited for');
    return prepared;
  }

  /**
   * Builds an event that is stored some time later, unlike all that others are about to store: who says the same twice in one
   * millisecond, on top of the same events, would make one event twice. The second is of the next millisecond.
   */
  async #buildUnlike(room: WorkingRoom, draft: EventDraft, place: PlaceOfDraft): Promise<BuiltEvent> {
    let built = await this.builder.build(room, draft, place);
    let twins = this.#built.get(built.event.eventId);
    if (!twins) twins = { lastTs: built.event.originServerTs };
    else {
      do built = await this.builder.build(room, { ...draft, originServerTs: ++twins.lastTs }, place);
      while (this.#built.has(built.event.eventId));
    }
    this.#built.set(built.event.eventId, twins);
    return built;
  }

  async #place(way: DraftWay): Promise<Prepared | undefined> {
    const { room, draft } = way;
    way.place = await this.builder.before(room);
    if (!draft.skipUnchanged) return undefined;
    const event = await this.builder.unchanged(room, draft, way.place.state);
    return event && { kind: 'unchanged', event };
  }

  async #askThirdPartyRules(way: DraftWay): Promise<Waiting<Judged> | undefined> {
    const { room, draft } = way;
    if (draft.unchecked === true || !this.gates.transforms || way.content !== undefined) return undefined;
    const still = room.still();
    const seen = this.contexts.asSeen(still, way.place.state);
    const answer = this.gates.transform(still, draft, seen, this.clock.nowMs()).finally(() => still.release());
    const content = way.inTurn ? await withinTurn(answer) : await answer;
    if (content instanceof Waiting) return content.map((changed) => ({ content: changed }));
    way.content = content;
    return undefined;
  }

  async #build(way: DraftWay): Promise<undefined> {
    const { room, draft, inTurn, content = draft.content } = way;
    const changed = content === draft.content ? draft : { ...draft, content };
    const isAsked = (draft.unchecked !== true && this.gates.active) || this.policies.concerns(room, draft);
    // What is staged at once follows upon what was staged before it, and so can equal nothing.
    way.built =
      inTurn && !isAsked
        ? await this.builder.build(room, changed, way.place)
        : await this.#buildUnlike(room, changed, way.place);
  }

  async #askSpamCheckers(way: DraftWay): Promise<Prepared | Waiting<Judged> | undefined> {
    const { room, draft, inTurn, built } = way;
    if (!built || draft.unchecked || !this.gates.judges) return undefined;
    let ready = built;
    let verdict = await withinTurn(this.gates.spam(built.event, draft.origin));
    if (verdict instanceof Waiting) {
      // They rarely refuse, and there is nothing else to do for this event meanwhile.
      way.built = ready = this.#signed(room, built);
      if (inTurn) {
        const still = room.still();
        const approved = verdict.answer.then((late) => this.#approved(still, draft, afterVerdict(ready, late)));
        return new Waiting(approved.finally(() => still.release()));
      }
      verdict = await verdict.answer;
    }
    const after = afterVerdict(ready, verdict);
    return 'kind' in after ? after : undefined;
  }

  /** With the signature, where nobody else adds to the event before that. */
  #signed(room: WorkingRoom, built: BuiltEvent): BuiltEvent {
    if (this.policies.concerns(room, built.event)) return built;
    const event = this.builder.sign(built.event);
    return { ...built, signed: { event, json: pduText(event) } };
  }

  async #askPolicyServer({ room, draft, inTurn, built }: DraftWay): Promise<Prepared | Waiting<Judged>> {
    if (!built) throw new Error('A draft that was not built');
    if (!this.policies.concerns(room, built.event)) return built;
    const answer = this.#approved(room, draft, built);
    return inTurn ? withinTurn(answer) : answer;
  }

  async #approved(room: WorkingRoom, draft: EventDraft, judged: Prepared): Promise<Prepared> {
    if ('kind' in judged || !this.policies.concerns(room, judged.event)) return judged;
    const isOwnLeave = draft.content['membership'] === 'leave' && draft.stateKey === draft.sender;
    const event = this.builder.sign(judged.event);
    const approved = await this.policies.approved(room, event, isOwnLeave || Boolean(draft.unchecked));
    return { ...judged, event: approved, signed: undefined };
  }

  /** {@link prepare} in the room's turn, and {@link stage}. Where somebody takes time nothing is staged. */
  async stageInTurn(room: WorkingRoom, draft: EventDraft): Promise<DraftOutcome | Waiting<Judged>> {
    const prepared = await goThrough(this.#stages, wayOf(room, draft, true));
    return prepared instanceof Waiting || 'kind' in prepared ? prepared : this.stage(room, draft, prepared);
  }

  /** {@link prepare} and {@link stage}, for a room that nobody else waits for. */
  async stageDraft(room: WorkingRoom, draft: EventDraft): Promise<DraftOutcome> {
    const prepared = await this.prepare(room, draft);
    return 'kind' in prepared ? prepared : this.stage(room, draft, prepared);
  }

  /**
   * Stages an event that was built outside the room's queue, while others may have been stored.
   * @returns `undefined` when the room has moved on so that it must be built anew
   * @throws MatrixError 403 when the room's current state forbids it
   */
  async stagePrepared(room: WorkingRoom, draft: EventDraft, built: BuiltEvent): Promise<DraftOutcome | undefined> {
    const { event } = built;
    if (this.contexts.isUnmoved(room, event.prevEventIds, built.before))
      return this.stage(room, draft, { ...built, before: await this.contexts.current(room) });
    const before = await this.contexts.before(room, event.prevEventIds);
    if ('missing' in before || (await this.builder.load(room, [event.eventId])).size > 0) return undefined;
    const wanted = authTypesFor(event, room.rules);
    const authIds = wanted.flatMap(([type, stateKey]) => before.idAt(stateKeyOf(type, stateKey)) ?? []);
    if (authIds.length !== event.authEventIds.length || authIds.some((id) => !event.authEventIds.includes(id))) {
      return undefined;
    }
    const now = checkAuth(event, await this.builder.authState(room, room, wanted));
    if (!now.allowed) throw MatrixError.forbidden(now.reason);
    return this.stage(room, draft, { ...built, before });
  }

  /**
   * Stages an event on top of the newest forward extremity alone, and drops the others. Nobody is asked.
   * @throws MatrixError as {@link DraftBuilder.build}
   */
  async stageOnNewestExtremity(room: WorkingRoom, draft: EventDraft): Promise<DraftOutcome> {
    // They lie in the order in which they came.
    const newest = [...room.extremities.keys()].at(-1);
    if (newest === undefined) throw new Error(`A room without forward extremities: ${room.roomId}`);
    const state = await this.contexts.before(room, [newest]);
    if ('missing' in state) throw new Error(`A forward extremity without state: ${newest}`);
    const built = await this.builder.build(room, draft, { prevEventIds: [newest], state });
    for (const id of [...room.extremities.keys()]) if (id !== newest) room.extremities.delete(id);
    return this.stage(room, draft, built);
  }

  /**
   * Signs and stages an event that everybody agreed to.
   * @throws StateMovedOn where the draft was to replace other state than there is
   */
  async stage(room: WorkingRoom, draft: EventDraft, built: BuiltEvent): Promise<DraftOutcome> {
    const { before, signed } = built;
    const { type, stateKey } = built.event;
    const key = stateKey === undefined ? undefined : stateKeyOf(type, stateKey);
    if (draft.replaces !== undefined && (key === undefined || room.idAt(key) !== draft.replaces))
      throw new StateMovedOn();
    const event = await this.#withPrejoinState(room, signed?.event ?? this.builder.sign(built.event));
    const chain = await this.contexts.groupAfter(room, before, event);
    room.stage({
      event,
      json: event === signed?.event ? signed.json : pduText(event),
      outlier: false,
      rejectedReason: undefined,
      softFailed: false,
      transaction: draft.transaction,
      replacesState: key === undefined ? undefined : before.idAt(key),
      group: groupOf(chain),
      redactionRecheck: built.redactionRecheck,
      replacesOutlier: false,
      isRemote: false,
    });
    await this.contexts.advance(room, event, before, chain);
    return { kind: 'staged', event };
  }

  /** Gives an invite or a knock the state that its target may see. */
  async #withPrejoinState(room: WorkingRoom, event: RoomEvent): Promise<RoomEvent> {
    if (event.type !== 'm.room.member') return event;
    const { membership } = event.content;
    if (membership !== 'invite' && membership !== 'knock') return event;
    const name = membership === 'invite' ? 'invite_room_state' : 'knock_room_state';
    const unsigned = { [name]: await this.#prejoinState(room, event) };
    return Object.freeze({ ...event, pdu: { ...event.pdu, unsigned } });
  }

  async #prejoinState(room: WorkingRoom, event: RoomEvent): Promise<JsonObject[]> {
    return (await this.#prejoinEvents(room, event)).map((state) => ({ ...stripped(state) }));
  }

  async #prejoinEvents(room: WorkingRoom, event: RoomEvent): Promise<RoomEvent[]> {
    const inviter = event.content['membership'] === 'invite' ? event.sender : undefined;
    const ids = this.prejoin.idsAmong({ get: (key) => room.idAt(key), keys: () => room.keys() }, inviter);
    const events = await this.builder.load(room, ids);
    return ids.flatMap((id) => events.get(id) ?? []);
  }
}

/** A draft at the beginning of its way. */
const wayOf = (room: WorkingRoom, draft: EventDraft, inTurn: boolean, content?: JsonObject): DraftWay => ({
  room,
  draft,
  inTurn,
  content,
  place: nowhere,
  built: undefined,
});

const nowhere: PlaceOfDraft = { prevEventIds: [], state: noState };

/** @throws MatrixError when a module refuses */
function afterVerdict(built: BuiltEvent, verdict: GateVerdict): Prepared {
  if (verdict.allowed) return built;
  if (verdict.effect !== 'refuse') return { kind: 'dropped', eventId: built.event.eventId };
  throw refusalError(verdict);
}
