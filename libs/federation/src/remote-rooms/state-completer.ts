import { Injectable, type OnModuleInit } from '@nestjs/common';
import { FederationRequestError } from '@rookery/federation-client';
import { Clock, Lifecycle, Logger, Semaphore } from '@rookery/platform';
import { EventPersister, PartialRooms } from '@rookery/rooms';
import { Candidates } from './candidates.js';
import { type KnownState, StoredStates } from './stored-states.js';

type PartialRoom = PartialRooms['all'][number];

/** Rooms whose state is fetched at a time. */
const maxAtOnce = 3;
/** Servers that are asked in one round. */
const maxServers = 20;
/** The pause after the first round in vain, by what it grows, and the longest; milliseconds. */
const firstPauseMs = 5_000;
const growth = 3;
const longestPauseMs = 3_600_000;

/**
 * Fetches the state of rooms that were joined before it was here (MSC3902): from the server that let the user in, then from the
 * others, round after round until one gives a state in which the join stands. What is to be done lies in the database.
 */
@Injectable()
export class StateCompleter implements OnModuleInit {
  readonly #turns = new Semaphore(maxAtOnce);
  readonly #running = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  readonly #logger: Logger;

  constructor(
    private readonly partial: PartialRooms,
    private readonly states: StoredStates,
    private readonly candidates: Candidates,
    private readonly persister: EventPersister,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  onModuleInit(): void {
    this.partial.onBegan((room) => this.#take(room));
    this.lifecycle.on('streams', {
      name: 'state of rooms',
      start: () => {
        for (const room of this.partial.all) this.#take(room);
      },
      stop: async () => {
        this.#stopping.abort();
        await Promise.all(this.#running);
      },
    });
  }

  #take(room: PartialRoom): void {
    const work = this.#complete(room)
      .finally(() => this.states.drop(room.joinEventId))
      .finally(() => this.#running.delete(work));
    this.#running.add(work);
  }

  async #complete(room: PartialRoom): Promise<void> {
    const signal = AbortSignal.any([this.#stopping.signal, room.over]);
    let pauseMs = firstPauseMs;
    for (let round = 0; !signal.aborted; round++) {
      try {
        if (await this.#trySome(room, round, signal)) return;
      } catch (error) {
        if (signal.aborted) return;
        // A database that is away, a disk that is full: no reason to leave the room as it is until the next start.
        this.#logger.error('The state of a room could not be completed', { roomId: room.roomId, err: error });
      }
      await this.clock.sleep(pauseMs, signal);
      pauseMs = Math.min(pauseMs * growth, longestPauseMs);
    }
  }

  /** One round; whether there is nothing left to do. */
  async #trySome(room: PartialRoom, round: number, signal: AbortSignal): Promise<boolean> {
    const servers = [...room.servers];
    // Those of the first rounds may be gone for good: every round goes on where the one before ended.
    const first = servers.length === 0 ? 0 : (round * (maxServers - 1)) % servers.length;
    const inTurn = [room.via, ...servers.slice(first), ...servers.slice(0, first)];
    for (const server of this.candidates.usable(inTurn).slice(0, maxServers)) {
      if (await this.#turns.run(() => this.#completeBy(server, room, signal))) return true;
    }
    return this.persister.abandonState(room.roomId, room.joinEventId, signal);
  }

  async #completeBy(server: string, room: PartialRoom, signal: AbortSignal): Promise<boolean> {
    const { roomId, joinEventId } = room;
    if (signal.aborted) return true;
    try {
      const given = await this.states.before(server, joinEventId, signal);
      const earlier = given && (await this.#fetchEarlier(server, room, signal));
      if (!given || !earlier || signal.aborted) return false;
      if (await this.persister.completeState(roomId, joinEventId, given, earlier, signal)) return true;
      this.#logger.warn('The join does not stand in the state that another server tells', {
        destination: server,
        roomId,
      });
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      this.#logger.info('Another server did not give the state of a room', {
        destination: server,
        roomId,
        reason: error.message,
      });
    }
    return false;
  }

  /** The state before joins that another one has followed since. What the server does not give is left as it was judged. */
  async #fetchEarlier(server: string, room: PartialRoom, signal: AbortSignal): Promise<Map<string, KnownState>> {
    const earlier = new Map<string, KnownState>();
    for (const eventId of await this.partial.earlierJoins(room)) {
      try {
        const given = await this.states.before(server, eventId, signal);
        if (given) earlier.set(eventId, given);
      } catch (error) {
        if (!(error instanceof FederationRequestError)) throw error;
        this.#logger.info('Another server did not give the state of a room before an earlier join', {
          destination: server,
          roomId: room.roomId,
          reason: error.message,
        });
      }
    }
    return earlier;
  }
}
