import { Injectable } from '@nestjs/common';
import { prejoinStateOf } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { EventStore } from '@rookery/rooms';
import type { RoomEntry } from './room-list.js';

/** Rooms that the user is not in yet: invites and knocks. */
@Injectable()
export class PrejoinSection {
  constructor(private readonly events: EventStore) {}

  /** The state that came with each invite and knock, and the member event itself. */
  async states(entries: readonly RoomEntry[]): Promise<Map<string, JsonObject[]>> {
    const waiting = entries.filter((entry) => entry.section === 'invite' || entry.section === 'knock');
    const loaded = await this.events.many(waiting.map((entry) => entry.membership.eventId));
    return new Map(
      waiting.flatMap((entry): [string, JsonObject[]][] => {
        const member = loaded.get(entry.membership.eventId)?.event;
        if (member === undefined) return [];
        const own = {
          type: member.type,
          state_key: member.stateKey ?? '',
          sender: member.sender,
          content: member.content,
        };
        return [[entry.roomId, [...prejoinStateOf(member), own]]];
      }),
    );
  }
}
