import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { Database } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import {
  type AuthState,
  authTypesFor,
  byPrev,
  checkAuth,
  powerLevelsOf,
  restsUpon,
  stateKeyOf,
} from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { StoredEvent } from '../model/stored-event.js';
import type { WorkingRoom } from '../room/working-room.js';
import { EventStore } from '../store/event-store.js';
import { selectPartialEvents } from '../store/partial-rooms.query.js';
import { DraftBuilder } from './draft-builder.js';
import { EventContexts, groupOf, type StateBefore } from './event-context.js';
import { judgeByOwnAuth } from './own-auth.js';

/** Events that are judged anew before others get a turn. */
const eventsPerTurn = 20;

/**
 * Judges anew what was stored of a room while not all of its state was here (MSC3902): each event gets the state that it has in
 * truth, and is rejected, or accepted, by that.
 */
@Injectable()
export class StateCompletion {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly builder: DraftBuilder,
    private readonly contexts: EventContexts,
  ) {}

  /**
   * Stages what becomes of a room's events and of its current state.
   * @param joinEventId the event with which this server came in
   * @param before all of the state before that event, and before others with which this server had come in
   * @returns whether that event stands in this state; otherwise nothing may be written
   */
  async restage(room: WorkingRoom, joinEventId: string, before: ReadonlyMap<string, StateBefore>): Promise<boolean> {
    const groups = await selectPartialEvents(this.database, room.roomId);
    const stored = await this.events.many([...groups.keys()]);
    const join = stored.get(joinEventId);
    if (!join) return false;
    const inOrder = byPrev([...stored.values()].map(({ event }) => event));
    room.rejudge(groups);
    room.missedServers = [...new Set([...(room.missedServers ?? []), ...unknownServers(room, inOrder)])];
    if (!(await this.#rejudge(room, inOrder, stored, { joinEventId, before }))) return false;
    this.#placeExtremities(room, inOrder, stored, join.streamOrdering);
    const group = room.groupOf(joinEventId);
    if (room.extremities.size === 0 && group !== undefined)
      room.extremities.set(joinEventId, { depth: join.event.depth, group });
    await this.contexts.resolveAnew(room);
    return true;
  }

  /** Whether the event with which this server came in stands in a state. */
  async stands(room: WorkingRoom, joinEventId: string, before: StateBefore): Promise<boolean> {
    const join = await this.events.one(joinEventId);
    return join !== undefined && (await this.#judge(room, join.event, before)) === undefined;
  }

  /** @returns whether the join stands */
  async #rejudge(
    room: WorkingRoom,
    inOrder: readonly RoomEvent[],
    stored: ReadonlyMap<string, StoredEvent>,
    { joinEventId, before }: { readonly joinEventId: string; readonly before: ReadonlyMap<string, StateBefore> },
  ): Promise<boolean> {
    let last: { readonly group: number; readonly state: StateBefore } | undefined;
    for (const [index, event] of inOrder.entries()) {
      if (index % eventsPerTurn === eventsPerTurn - 1) await nextTurn();
      const isJoin = event.eventId === joinEventId;
      const at = before.get(event.eventId) ?? (await this.contexts.beforeAnew(room, event.prevEventIds, last));
      // It was placed by a state that another server told: that one was whole.
      if (!at) continue;
      const entry = stored.get(event.eventId)!;
      const rejectedReason = await this.#judge(room, event, at);
      if (isJoin && rejectedReason !== undefined) return false;
      const chain = rejectedReason === undefined ? await this.contexts.groupAfter(room, at, event) : at.chain;
      const group = groupOf(chain);
      if (group === undefined) continue;
      const key = event.stateKey === undefined ? undefined : stateKeyOf(event.type, event.stateKey);
      room.rejudged?.set(event.eventId, {
        event,
        group,
        rejectedReason,
        wasRejected: entry.rejectedReason !== undefined,
        replacesState: key === undefined ? undefined : at.idAt(key),
        softFailed: entry.softFailed,
        streamOrdering: entry.streamOrdering,
        receivedTs: entry.receivedTs,
        redactionRecheck: await this.#redactionRecheck(room, event, at),
      });
      last = group === groupOf(at.chain) ? { group, state: at } : undefined;
    }
    return true;
  }

  async #judge(room: WorkingRoom, event: RoomEvent, before: StateBefore): Promise<string | undefined> {
    const auth = await this.events.many(restsUpon(event));
    const { verdict } = judgeByOwnAuth(event, (id) => {
      const known = auth.get(id);
      const anew = room.rejudged?.get(id);
      return known && anew ? { event: known.event, rejectedReason: anew.rejectedReason } : known;
    });
    if (!verdict.allowed) return verdict.reason;
    const state: AuthState = await this.builder.authState(room, before, authTypesFor(event, room.rules));
    const byState = checkAuth(event, state);
    return byState.allowed ? undefined : byState.reason;
  }

  /** Whether a redaction counts only for events of its sender's own server; `undefined` for what is none. */
  async #redactionRecheck(room: WorkingRoom, event: RoomEvent, before: StateBefore): Promise<boolean | undefined> {
    if (event.type !== 'm.room.redaction' || event.redacts === undefined) return undefined;
    const levels = powerLevelsOf(
      await this.builder.authState(room, before, authTypesFor(event, room.rules)),
      room.rules,
    );
    return levels.user(event.sender) < levels.scalar('redact');
  }

  /**
   * The forward extremities are those accepted events that no accepted one follows upon, be it by way of others.
   * @param since where the room began anew: what was said before an earlier leave is none
   */
  #placeExtremities(
    room: WorkingRoom,
    inOrder: readonly RoomEvent[],
    stored: ReadonlyMap<string, StoredEvent>,
    since: number,
  ): void {
    room.extremities.clear();
    // Behind an event that does not count: what it follows upon.
    const through = new Map<string, readonly string[]>();
    for (const event of inOrder) {
      const entry = stored.get(event.eventId)!;
      const anew = room.rejudged?.get(event.eventId);
      const group = room.groupOf(event.eventId);
      const prevs = [...new Set(event.prevEventIds.flatMap((id) => through.get(id) ?? [id]))];
      const isRejected = anew ? anew.rejectedReason !== undefined : entry.rejectedReason !== undefined;
      if (isRejected || entry.softFailed || group === undefined) {
        through.set(event.eventId, prevs);
        continue;
      }
      for (const id of prevs) room.extremities.delete(id);
      // What lies in the past is no end of the room.
      if (entry.streamOrdering >= since) room.extremities.set(event.eventId, { depth: event.depth, group });
    }
  }
}

/** Other servers whose users came in by some events, whether or not those count, and that nobody named before. */
function unknownServers({ base }: WorkingRoom, events: readonly RoomEvent[]): string[] {
  return events
    .filter(({ type, content }) => type === 'm.room.member' && content['membership'] === 'join')
    .map(({ stateKey = '' }) => domainOf(stateKey))
    .filter((server) => server !== base.serverName && !base.partialServers?.has(server));
}
