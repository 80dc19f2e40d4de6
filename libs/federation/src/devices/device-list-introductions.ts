import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Clock, Lifecycle, Logger } from '@rookery/platform';
import { type EventBatch, EventStore, RoomHooks } from '@rookery/rooms';
import { ArrivalBatches } from '../edus/arrival-batches.js';
import { BestEffort } from '../edus/best-effort.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { DeviceListNews } from './device-list-news.js';

/** The servers of a room pay no heed to the devices of somebody of whose join they have not heard yet. */
const delayMs = 1_000;

/**
 * Tells the servers of a room which a user of this server joins of the user's devices; where not all of its members are known, once
 * they are. Best effort: whoever is not told learns of them by asking.
 * @spec server-server-api#device-management
 */
@Injectable()
export class DeviceListIntroductions implements OnModuleInit, OnModuleDestroy {
  /** Rooms by user. */
  readonly #arrivals: ArrivalBatches;

  constructor(
    clock: Clock,
    private readonly hooks: RoomHooks,
    private readonly events: EventStore,
    private readonly audience: RemoteAudience,
    private readonly news: DeviceListNews,
    lifecycle: Lifecycle,
    logger: Logger,
  ) {
    const effort = new BestEffort(lifecycle, logger);
    this.#arrivals = new ArrivalBatches(clock, effort, delayMs, 'device lists', (arrivals) =>
      this.#introduce(arrivals),
    );
  }

  onModuleInit(): void {
    this.hooks.subscribe({ afterCommit: (batch) => this.#noteArrivals(batch) });
  }

  onModuleDestroy(): void {
    this.#arrivals.cancel();
  }

  #noteArrivals({ roomId, moves, room, backfilled, missedServers }: EventBatch): void {
    if (backfilled || (moves.length === 0 && missedServers === undefined) || !this.audience.hasAny) return;
    if (missedServers !== undefined) for (const userId of room.localMembers) this.#arrivals.add(userId, roomId);
    for (const { userId, membership, prevEventId } of moves) {
      if (!room.localMembers.has(userId)) this.#arrivals.remove(userId, roomId);
      if (membership !== 'join' || !room.localMembers.has(userId) || room.isPartial) continue;
      // A new name is the commonest of these events, and no arrival.
      const before = prevEventId === undefined ? undefined : this.events.peek(prevEventId)?.event.content;
      if (before?.['membership'] === 'join') continue;
      this.#arrivals.add(userId, roomId);
    }
  }

  async #introduce(arrivals: ReadonlyMap<string, ReadonlySet<string>>): Promise<void> {
    const audiences = await this.audience.inRooms([...arrivals.values()].flatMap((rooms) => [...rooms]));
    const met = new Map<string, Set<string>>();
    for (const [userId, rooms] of arrivals) {
      const servers = new Set([...rooms].flatMap((roomId) => audiences.get(roomId) ?? []));
      if (servers.size > 0) met.set(userId, servers);
    }
    if (met.size > 0) await this.news.introduce(met);
  }
}
