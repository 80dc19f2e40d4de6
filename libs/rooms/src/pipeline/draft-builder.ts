import { Injectable } from '@nestjs/common';
import {
  buildEvent,
  canonicalJson,
  InvalidEventError,
  referenceHash,
  type RoomEvent,
  signEvent,
  SigningKey,
} from '@rookery/events';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { authTypesFor, checkAuth, powerLevelsOf, type AuthState, stateKeyOf } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { EventDraft } from '../model/drafts.js';
import { EventContexts, type StateBefore } from './event-context.js';
import type { WorkingRoom } from '../room/working-room.js';

/** An event of this server that the auth rules allow. */
export interface BuiltEvent {
  readonly event: RoomEvent;
  /** The same with this server's signature, and its PDU as text, where there was time for it. */
  readonly signed?: { readonly event: RoomEvent; readonly json: string } | undefined;
  readonly before: StateBefore;
  /** For redactions: whether the redaction counts only for events of the sender's own server. */
  readonly redactionRecheck: boolean | undefined;
}

/** Where in a room an event is made: the events that it follows upon, and the state there. */
export interface PlaceOfDraft {
  readonly prevEventIds: readonly string[];
  readonly state: StateBefore;
}

/** The auth rules refuse an event: 403 `M_FORBIDDEN`, or 400 `M_BAD_JSON` where nobody could send it. */
export class AuthRefusal extends MatrixError {
  constructor(reason: string, options: { readonly isMalformed?: boolean; readonly extra?: Readonly<JsonObject> } = {}) {
    super(options.isMalformed ? 400 : 403, options.isMalformed ? 'M_BAD_JSON' : 'M_FORBIDDEN', reason, options.extra);
  }
}

/** More forward extremities than that are merged by and by: a PDU holds 20, and each costs every server. */
const maxPrevEvents = 10;

/** Makes events of local users: previous and auth events, format, hash, auth rules. */
@Injectable()
export class DraftBuilder {
  constructor(
    private readonly contexts: EventContexts,
    private readonly events: EventStore,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly key: SigningKey,
    private readonly config: Config,
  ) {}

  /** The state that a draft will be built upon. */
  async before(room: WorkingRoom): Promise<PlaceOfDraft> {
    const extremities = [...room.extremities];
    if (extremities.length <= maxPrevEvents) {
      return { prevEventIds: extremities.map(([id]) => id), state: await this.contexts.current(room) };
    }
    extremities.sort(([, a], [, b]) => b.depth - a.depth);
    const prevEventIds = extremities.slice(0, maxPrevEvents).map(([id]) => id);
    const state = await this.contexts.before(room, prevEventIds);
    if ('missing' in state) throw new Error(`Forward extremities without state: ${state.missing.join(', ')}`);
    return { prevEventIds, state };
  }

  /**
   * Builds an event and checks it against the state before it.
   * @throws MatrixError 403 `M_FORBIDDEN`, 400 `M_BAD_JSON`, 413 `M_TOO_LARGE`
   */
  async build(room: WorkingRoom, draft: EventDraft, place: PlaceOfDraft): Promise<BuiltEvent> {
    const { rules } = room;
    const { prevEventIds, state: before } = place;
    const isCreate = draft.type === 'm.room.create' && prevEventIds.length === 0;
    const authInput = { type: draft.type, stateKey: draft.stateKey, sender: draft.sender, content: draft.content };
    const wanted = authTypesFor(authInput, rules);
    const authIds = wanted
      .map(([type, stateKey]) => before.idAt(stateKeyOf(type, stateKey)))
      .filter((id) => id !== undefined);
    const authState = await this.authState(room, before, wanted);
    const hashes =
      rules.eventFormat === 'v1' ? await this.#referenceHashes(room, [...prevEventIds, ...authIds]) : undefined;
    let depth = 0;
    for (const id of prevEventIds) depth = Math.max(depth, room.extremities.get(id)?.depth ?? 0);
    const event = wellFormed(() =>
      buildEvent(
        {
          roomId: isCreate && rules.createEventImplied ? undefined : room.roomId,
          type: draft.type,
          stateKey: draft.stateKey,
          sender: draft.sender,
          content: draft.content,
          originServerTs: draft.originServerTs ?? this.clock.nowMs(),
          depth: depth + 1,
          prevEventIds,
          authEventIds: authIds,
          redacts: draft.redacts,
          stickyDurationMs: draft.stickyDurationMs,
          ...(hashes && { referenceHashes: hashes, eventId: `$${this.ids.letters(18)}:${domainOf(draft.sender)}` }),
        },
        rules,
      ),
    );
    const verdict = checkAuth(event, authState);
    if (!verdict.allowed) {
      const { reason, isMalformed = false } = verdict;
      throw new AuthRefusal(reason, { isMalformed, extra: isMalformed ? {} : this.#causeOf(event, authState) });
    }
    const redactionRecheck = await this.#redactionRecheck(room, draft, authState);
    return { event, before, redactionRecheck };
  }

  /** Says why the auth rules refuse an event, to clients that ask (MSC3848). */
  #causeOf(event: RoomEvent, state: AuthState): JsonObject {
    if (!this.config.get('experimental_features.msc3848_enabled')) return {};
    const membershipOf = (userId: string): unknown => state('m.room.member', userId)?.content['membership'];
    const { type, stateKey, sender, content } = event;
    const isInvite = type === 'm.room.member' && content['membership'] === 'invite';
    const levels = powerLevelsOf(state, event.rules);
    const code =
      membershipOf(sender) !== 'join'
        ? 'NOT_JOINED'
        : isInvite && membershipOf(stateKey ?? '') === 'join'
          ? 'ALREADY_JOINED'
          : levels.user(sender) < (isInvite ? levels.scalar('invite') : levels.event(type, stateKey !== undefined))
            ? 'INSUFFICIENT_POWER'
            : undefined;
    return code === undefined ? {} : { 'org.matrix.msc3848.unstable.errcode': `ORG.MATRIX.MSC3848.${code}` };
  }

  /** Signs for this server. */
  sign(event: RoomEvent): RoomEvent {
    return signEvent(event, domainOf(event.sender), this.key);
  }

  /** The state that auth rules look at, loaded. */
  async authState(
    room: WorkingRoom,
    before: Pick<StateBefore, 'idAt'>,
    wanted: readonly (readonly [type: string, stateKey: string])[],
  ): Promise<AuthState> {
    const ids = new Map<string, string>();
    for (const [type, stateKey] of [['m.room.create', ''] as const, ...wanted]) {
      const key = stateKeyOf(type, stateKey);
      const id = before.idAt(key);
      if (id !== undefined) ids.set(key, id);
    }
    const loaded = await this.load(room, ids.values());
    return (type, stateKey) => {
      const id = ids.get(stateKeyOf(type, stateKey));
      return id === undefined ? undefined : loaded.get(id);
    };
  }

  /** Events that are staged or stored. */
  load(room: WorkingRoom, ids: Iterable<string>): Promise<Map<string, RoomEvent>> {
    return this.events.events(ids, room.stagedById);
  }

  /** The stored event that a draft would only repeat, if it is state. */
  async unchanged(room: WorkingRoom, draft: EventDraft, before: StateBefore): Promise<RoomEvent | undefined> {
    if (draft.stateKey === undefined) return undefined;
    const id = before.idAt(stateKeyOf(draft.type, draft.stateKey));
    if (id === undefined) return undefined;
    const event = (await this.load(room, [id])).get(id);
    if (event?.sender !== draft.sender) return undefined;
    const content = wellFormed(() => canonicalJson(draft.content));
    return canonicalJson(event.content as JsonObject) === content ? event : undefined;
  }

  async #referenceHashes(room: WorkingRoom, ids: readonly string[]): Promise<Map<string, string>> {
    const loaded = await this.load(room, ids);
    return new Map([...loaded].map(([id, event]) => [id, referenceHash(event.pdu, event.rules)]));
  }

  /**
   * From room version 3 on the auth rules let anybody redact anything; what counts is checked here, for local senders before
   * the event exists.
   * @spec rooms/v3#handling-redactions
   */
  async #redactionRecheck(room: WorkingRoom, draft: EventDraft, state: AuthState): Promise<boolean | undefined> {
    if (draft.type !== 'm.room.redaction' || draft.redacts === undefined) return undefined;
    const target = room.stagedById.get(draft.redacts)?.event ?? (await this.events.one(draft.redacts))?.event;
    if (target && target.roomId !== room.roomId) {
      throw MatrixError.invalidParam('The event to be redacted is in another room');
    }
    if (target?.type === 'm.room.create' || target?.type === 'm.room.server_acl') {
      throw MatrixError.forbidden('Events of this type cannot be redacted');
    }
    const levels = powerLevelsOf(state, room.rules);
    if (levels.user(draft.sender) >= levels.scalar('redact')) return false;
    if (!target) throw MatrixError.noSuchEvent();
    if (target.sender !== draft.sender) throw MatrixError.forbidden('You may not redact events of others');
    return true;
  }
}

/** Turns what is wrong with a local event into what its client should see. */
function wellFormed<T>(build: () => T): T {
  try {
    return build();
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
    if (error.kind === 'tooLarge') throw MatrixError.tooLarge(`The event is too large: ${error.reason}`);
    throw MatrixError.badJson(`This cannot be an event: ${error.reason}`);
  }
}
