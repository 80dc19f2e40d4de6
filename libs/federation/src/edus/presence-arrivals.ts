import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { PresenceReader, RoomAudience } from '@rookery/ephemeral';
import { domainOf } from '@rookery/matrix-types';
import { Clock, Config, Lifecycle, Logger } from '@rookery/platform';
import { type EventBatch, EventStore, RoomHooks } from '@rookery/rooms';
import { ArrivalBatches } from './arrival-batches.js';
import { BestEffort } from './best-effort.js';
import { OutgoingPresence } from './outgoing-presence.js';

/** Arrivals are answered together. */
const arrivalDelayMs = 500;
/** Presences that an arriving server is told of one room. */
const maxPresences = 500;

/** Tells servers that come into a room who is there. Best effort. */
@Injectable()
export class PresenceArrivals implements OnModuleInit, OnModuleDestroy {
  /** Servers by room. */
  readonly #arrivals: ArrivalBatches;

  // Nine parameters: arrivals are found among a room's events, and answered with those of its members who are there.
  constructor(
    clock: Clock,
    private readonly config: Config,
    private readonly roomHooks: RoomHooks,
    private readonly presence: PresenceReader,
    private readonly members: RoomAudience,
    private readonly events: EventStore,
    private readonly out: OutgoingPresence,
    lifecycle: Lifecycle,
    logger: Logger,
  ) {
    const effort = new BestEffort(lifecycle, logger);
    this.#arrivals = new ArrivalBatches(clock, effort, arrivalDelayMs, 'presence', (each) => this.#welcome(each));
  }

  onModuleInit(): void {
    this.roomHooks.subscribe({ afterCommit: (batch) => this.#noteArrivals(batch) });
  }

  onModuleDestroy(): void {
    this.#arrivals.cancel();
  }

  /** A server that comes into a room is told who is there. */
  #noteArrivals({ roomId, events, room, backfilled }: EventBatch): void {
    if (backfilled || room.remoteServers.length === 0 || room.localMembers.size === 0) return;
    for (const { event, outlier, replacesState } of events) {
      if (outlier || event.type !== 'm.room.member' || event.content['membership'] !== 'join') continue;
      const server = event.stateKey === undefined ? undefined : domainOf(event.stateKey);
      if (server === undefined || server === this.config.serverName) continue;
      // A new name is the commonest of these events, and no arrival.
      const before = replacesState === undefined ? undefined : this.events.peek(replacesState)?.event.content;
      if (before?.['membership'] === 'join') continue;
      if (!this.presence.enabled) return;
      this.#arrivals.add(roomId, server);
    }
  }

  async #welcome(arrivals: ReadonlyMap<string, ReadonlySet<string>>): Promise<void> {
    const present = this.presence.localPresent();
    if (present.length === 0) return;
    const hidden = new Set(this.config.get('exclude_rooms_from_presence'));
    const rooms = [...arrivals.keys()].filter((roomId) => !hidden.has(roomId));
    const members = await this.members.ofRooms(rooms);
    for (const roomId of rooms) {
      const there = present.filter(({ userId }) => members.get(roomId)?.has(userId)).slice(0, maxPresences);
      if (there.length === 0) continue;
      await this.out.introduceIn(roomId, arrivals.get(roomId)!, there);
    }
  }
}
