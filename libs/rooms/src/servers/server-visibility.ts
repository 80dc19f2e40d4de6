import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { redactEvent, type RoomEvent, historyVisibilityIn, type HistoryVisibility } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { HiddenSenders } from '../reading/hidden-senders.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { selectUsersOfServer } from './servers.query.js';

/** Users of one server whose memberships are looked at, and at a time; of a server with more in a room the first ones stand for all. */
const maxUsers = 50_000;
const usersAtOnce = 1_000;
const visibilityKey = stateKeyOf('m.room.history_visibility', '');

/** Decides what of a room's history another server may see. A bounded number of queries for any number of events. */
@Injectable()
export class ServerVisibility {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly hidden: HiddenSenders,
  ) {}

  /**
   * Events of one room for another server, in the order given: whole where one of its users could see them when they were
   * sent, else in their redacted form. So comes what users said who asked to be forgotten, and what was purged but is kept.
   * @spec server-server-api#backfilling-and-retrieving-missing-events
   */
  async shown(serverName: string, roomId: string, events: readonly StoredEvent[]): Promise<RoomEvent[]> {
    const [hidden, erased] = await Promise.all([
      this.#hidden(serverName, roomId, events),
      this.hidden.erasedOf(events.map(({ event }) => event.sender)),
    ]);
    return events.map(({ event }) =>
      hidden.has(event.eventId) || erased.has(event.sender) ? redactEvent(event) : event,
    );
  }

  /** Ids of those that none of a server's users could see. */
  async #hidden(serverName: string, roomId: string, events: readonly StoredEvent[]): Promise<Set<string>> {
    const ids = events.map(({ event }) => event.eventId);
    const states = await this.state.idsAfter(ids, { types: [['m.room.history_visibility', '']] });
    const settings = await this.events.events(
      new Set([...states.values()].flatMap((state) => state.get(visibilityKey) ?? [])),
    );
    const visibilityAt = (id: string): HistoryVisibility =>
      historyVisibilityIn(settings.get(states.get(id)?.get(visibilityKey) ?? '')?.content);
    const restricted = events.filter(({ event }) => {
      if (domainOf(event.sender) === serverName || domainOf(event.stateKey ?? '') === serverName) return false;
      // Without a place in the room nobody can say who saw it. Pieces of state are told so: others rest upon them.
      if (!states.has(event.eventId) && event.stateKey === undefined) return true;
      const visibility = visibilityAt(event.eventId);
      return visibility === 'joined' || visibility === 'invited';
    });
    const hidden = new Set(restricted.map(({ event }) => event.eventId));
    if (hidden.size === 0) return hidden;
    const users = await selectUsersOfServer(this.database, serverName, roomId, maxUsers);
    for (let from = 0; from < users.length && hidden.size > 0; from += usersAtOnce) {
      for (const id of await this.#seenBy(users.slice(from, from + usersAtOnce), hidden, visibilityAt))
        hidden.delete(id);
    }
    return hidden;
  }

  /** Those of the events that one of the users could see. */
  async #seenBy(
    users: readonly string[],
    ids: ReadonlySet<string>,
    visibilityAt: (id: string) => HistoryVisibility,
  ): Promise<string[]> {
    const states = await this.state.idsAfter([...ids], { types: users.map((userId) => ['m.room.member', userId]) });
    const members = await this.events.events(new Set([...states.values()].flatMap((state) => [...state.values()])));
    return [...ids].filter((id) =>
      [...(states.get(id)?.values() ?? [])].some((memberId) => {
        const membership = members.get(memberId)?.content['membership'];
        return membership === 'join' || (membership === 'invite' && visibilityAt(id) === 'invited');
      }),
    );
  }
}
