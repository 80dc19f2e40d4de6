import { Injectable } from '@nestjs/common';
import { pduText, type RoomEvent } from '@rookery/events';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { type GateVerdict, refusalError } from '@rookery/module-host';
import { Clock } from '@rookery/platform';
import { authTypesFor, checkAuth, stateKeyOf } from '@rookery/state-res';
import { RemoteRooms } from '../remote-rooms.js';
import { EventGates } from './event-gates.js';
import { PolicyServers } from './policy-servers.js';
import { LRUCache } from 'lru-cache';
import { atOnce, later } from './at-once.js';
import { type BuiltEvent, DraftBuilder, type PlaceOfDraft } from './draft-builder.js';
import type { EventDraft } from '../model/drafts.js';
import { groupOf, EventContexts } from './event-context.js';
import { PrejoinState, stripped } from './prejoin-state.js';
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

/** How a draft is prepared. */
interface Preparation {
  /** Others of the room wait, so whoever thinks ends it with {@link StillThinking}. */
  readonly inTurn?: boolean;
  /** What third-party rules have said already. */
  readonly content?: JsonObject | undefined;
}

/** Thrown in a room's turn: a module, or another server, thinks about the draft for longer than a turn of the event loop. */
export class StillThinking extends MatrixError {
  constructor(
    /** How far the draft got, once the module has answered. */
    readonly judged: Promise<Judged>,
  ) {
    super(503, 'M_UNKNOWN', 'A module of this server takes its time');
  }
}

/** Stages events of local users: draft, third-party rules, format and hash, auth rules, spam checkers, signature. */
@Injectable()
export class LocalStager {
  /** Events that were built lately and may not be stored yet, each with the last time that was given to one like it. */
  readonly #built = new LRUCache<string, { lastTs: number }>({ maxSize: 20_000, sizeCalculation: () => 1 });

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
    const built = await this.prepare(room, draft, { content: judged?.content });
    if ('kind' in built || !this.asksServer(draft)) return built;
    const shown = (await this.#prejoinEvents(room, built.event)).map(({ pdu }) => pdu);
    const { gateway } = this.remote;
    if (!gateway) throw MatrixError.forbidden('Nobody of another server can be invited');
    const event = await gateway.invite(this.builder.sign(built.event), shown);
    if (event.eventId !== built.event.eventId) throw MatrixError.forbidden('The other server has changed the invite');
    return { ...built, event };
  }

  /**
   * Builds an event on top of the room and lets the modules and the room's policy server judge it. Stages nothing.
   * @throws MatrixError 403 and what else {@link DraftBuilder.build}, modules and {@link PolicyServers.approved} throw
   */
  async prepare(room: WorkingRoom, draft: EventDraft, how: Preparation = {}): Promise<Prepared> {
    const judged = await this.#judge(room, draft, how);
    if ('kind' in judged || !this.policies.concerns(room, judged.event)) return judged;
    const answer = this.#approve(room, draft, judged);
    const prepared = how.inTurn ? await atOnce(answer) : await answer;
    if (prepared === later) throw new StillThinking(answer);
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

  async #approve(room: WorkingRoom, draft: EventDraft, judged: Prepared): Promise<Prepared> {
    if ('kind' in judged || !this.policies.concerns(room, judged.event)) return judged;
    const isOwnLeave = draft.content['membership'] === 'leave' && draft.stateKey === draft.sender;
    const event = this.builder.sign(judged.event);
    return { ...judged, event: await this.policies.approved(room, event, isOwnLeave || draft.unchecked === true) };
  }

  async #judge(room: WorkingRoom, draft: EventDraft, how: Preparation): Promise<Prepared> {
    const place = await this.builder.before(room);
    if (draft.skipUnchanged) {
      const event = await this.builder.unchanged(room, draft, place.state);
      if (event) return { kind: 'unchanged', event };
    }
    if (draft.unchecked || !this.gates.active) {
      // What is staged at once follows upon what was staged before it, and so can equal nothing.
      return how.inTurn && !this.policies.concerns(room, draft)
        ? this.builder.build(room, draft, place)
        : this.#buildUnlike(room, draft, place);
    }
    const { inTurn = false } = how;
    let { content = draft.content } = how;
    if (this.gates.transforms && how.content === undefined) {
      const still = room.still();
      const seen = this.contexts.asSeen(still, place.state);
      const answer = this.gates.transform(still, draft, seen, this.clock.nowMs()).finally(() => still.release());
      const now = inTurn ? await atOnce(answer) : await answer;
      if (now === later) throw new StillThinking(answer.then((changed) => ({ content: changed })));
      content = now;
    }
    const changed = content === draft.content ? draft : { ...draft, content };
    const built = await this.#buildUnlike(room, changed, place);
    if (!this.gates.judges) return built;
    const answer = this.gates.spam(built.event, draft.origin);
    const verdict = inTurn ? await atOnce(answer) : await answer;
    if (verdict === later) {
      const still = room.still();
      const approved = answer.then((late) => this.#approve(still, draft, afterVerdict(built, late)));
      throw new StillThinking(approved.finally(() => still.release()));
    }
    return afterVerdict(built, verdict);
  }

  /**
   * {@link prepare} in the room's turn, and {@link stage}.
   * @throws StillThinking when a module thinks: nothing is staged, the draft goes on outside
   */
  async stageInTurn(room: WorkingRoom, draft: EventDraft): Promise<DraftOutcome> {
    const prepared = await this.prepare(room, draft, { inTurn: true });
    return 'kind' in prepared ? prepared : this.stage(room, draft, prepared);
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

  /** Signs and stages an event that everybody agreed to. */
  async stage(room: WorkingRoom, draft: EventDraft, built: BuiltEvent): Promise<DraftOutcome> {
    const { before } = built;
    const event = await this.#withPrejoinState(room, this.builder.sign(built.event));
    const chain = await this.contexts.groupAfter(room, before, event);
    const key = event.stateKey === undefined ? undefined : stateKeyOf(event.type, event.stateKey);
    room.stage({
      event,
      json: pduText(event),
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
    const ids = this.prejoin.keys(inviter).flatMap((key) => room.idAt(key) ?? []);
    const events = await this.builder.load(room, ids);
    return ids.flatMap((id) => events.get(id) ?? []);
  }
}

/** @throws MatrixError when a module refuses */
function afterVerdict(built: BuiltEvent, verdict: GateVerdict): Prepared {
  if (verdict.allowed) return built;
  if (verdict.effect !== 'refuse') return { kind: 'dropped', eventId: built.event.eventId };
  throw refusalError(verdict);
}
