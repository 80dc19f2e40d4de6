import { Injectable } from '@nestjs/common';
import { FederationClient, federationPath, FederationRequestError } from '@rookery/federation-client';
import { isValidEventId } from '@rookery/matrix-types';
import { EventStore, isServable } from '@rookery/rooms';
import { MissingEvents } from './missing-events.js';
import { PastEvents } from './past-events.js';
import { RoomHosts } from './room-hosts.js';

const maxServers = 3;
const timeoutMs = 10_000;
const maxBytes = 65_536;

/** Finds events by time in the history that other servers have. */
@Injectable()
export class RemoteEventByTime {
  constructor(
    private readonly client: FederationClient,
    private readonly hosts: RoomHosts,
    private readonly missing: MissingEvents,
    private readonly past: PastEvents,
    private readonly events: EventStore,
  ) {}

  /**
   * The event on one side of a point in time that is nearest as the first helpful server sees it. It is stored then.
   * @param direction `f`: at or after `ts`; `b`: at or before it
   * @spec server-server-api#get_matrixfederationv1timestamp_to_eventroomid
   */
  async find(
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
  ): Promise<{ readonly eventId: string; readonly ts: number } | undefined> {
    for (const server of await this.hosts.likely(roomId, maxServers)) {
      const eventId = await this.#ask(server, roomId, ts, direction);
      if (eventId === undefined) continue;
      let stored = await this.events.one(eventId);
      if (!stored || stored.outlier) {
        const [event] = await this.missing.events(server, roomId, [eventId]);
        if (event && (await this.past.take(server, roomId, [event])).length > 0)
          stored = await this.events.one(eventId);
      }
      if (!stored || !isServable(stored) || stored.event.roomId !== roomId) continue;
      const { originServerTs } = stored.event;
      if (direction === 'f' ? originServerTs >= ts : originServerTs <= ts) return { eventId, ts: originServerTs };
    }
    return undefined;
  }

  async #ask(server: string, roomId: string, ts: number, direction: 'f' | 'b'): Promise<string | undefined> {
    try {
      const path = federationPath`/_matrix/federation/v1/timestamp_to_event/${roomId}`;
      const more = { timeoutMs, maxBytes, retries: 'none', awaited: true } as const;
      const { event_id: eventId } = await this.client.getJson(server, path, { ts, dir: direction }, more);
      return typeof eventId === 'string' && isValidEventId(eventId) ? eventId : undefined;
    } catch (error) {
      if (error instanceof FederationRequestError) return undefined;
      throw error;
    }
  }
}
