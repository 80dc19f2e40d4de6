import { Injectable } from '@nestjs/common';
import { Clock, Metrics, type Timer } from '@rookery/platform';
import { fadingMs, RecentUse } from './recent-use.js';

/** Pieces of work under way at once; and of them those of servers and rooms that have used much. */
const places = 12;
const heavyPlaces = 2;
/** Who has used so many times the usual has used much, and never who has used less than that, milliseconds of {@link RecentUse}. */
const muchMore = 4;
const littleMs = fadingMs / 100;
/** What takes longer waits for something else as a rule: its place is free then, milliseconds. So many places are given up. */
const slowAfterMs = 1_000;
const maxSlow = 64;
/** Piece of work that others should wait for at most, milliseconds of CPU time, and the events in it. */
const pieceMs = 20;
const [fewestEvents, mostEvents] = [10, 50];
/** Servers that operators are told of. */
const namedOrigins = 10;

/** Work that other servers have caused. */
export interface CausedWork {
  /** Who has: whoever has used the least decides when it is done. Asked each time a place is free. */
  readonly origins: () => Iterable<string>;
  /** The room that it is about, whose use counts too: work of one room waits where the room has used more than the servers. */
  readonly roomId?: string;
  /** Told when its place was taken away, because it takes long. */
  readonly isSlow?: () => void;
}

/** A piece of work under way. */
export interface OriginTurn {
  /** Says whose events are in it, for each of them: its cost is theirs, in equal parts. */
  with(origins: readonly string[]): void;
}

interface Waiting extends CausedWork {
  readonly begin: (turn: Running) => void;
}

class Running implements OriginTurn {
  origins: readonly string[] = [];
  holdsPlace = true;
  timer: Timer | undefined;

  constructor(
    readonly isHeavy: boolean,
    readonly meterMs: number,
  ) {}

  with(origins: readonly string[]): void {
    this.origins = origins;
  }
}

/**
 * Gives turns to the work that other servers cause: always to that of the server, and about the room, that has used the least CPU
 * time lately. So one that sends what is costly waits behind those that do not, and only where there is not enough for all.
 *
 * What a piece of work has cost is its share of the thread's CPU time while it was under way, of which all that is under way has equal
 * parts: what is done for clients meanwhile is in it, but a piece that takes twice as long has twice as much of it.
 */
@Injectable()
export class OriginTurns {
  readonly #origins: RecentUse;
  readonly #rooms: RecentUse;
  readonly #waiting = new Set<Waiting>();
  readonly #running = new Set<Running>();
  #heavy = 0;
  #slow = 0;
  /** The part of each piece under way, if it had been under way all the time; CPU time of the thread when that was counted. */
  #meterMs = 0;
  #countedMs = 0;
  readonly #waitedS;
  readonly #named = new Set<string>();

  constructor(
    private readonly clock: Clock,
    metrics: Metrics,
  ) {
    this.#origins = new RecentUse(clock);
    this.#rooms = new RecentUse(clock);
    this.#waitedS = metrics.histogram({
      name: 'rookery_federation_turn_wait_seconds',
      help: 'Time that work which other servers have caused has waited for its turn, seconds.',
      buckets: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60],
    });
    metrics.gauge(
      {
        name: 'rookery_federation_origin_cpu_share',
        help: `Share of the main thread's time that the ${namedOrigins} most costly of other servers have used in the last seconds.`,
        labels: ['origin_server_name'],
      },
      (gauge) => {
        const most = this.#origins.most(namedOrigins);
        for (const name of this.#named) gauge.remove({ origin_server_name: name });
        this.#named.clear();
        for (const [name, ms] of most) {
          this.#named.add(name);
          gauge.set({ origin_server_name: name }, ms / fadingMs);
        }
      },
    );
  }

  /** Does work of one server once it is its turn. Work must not wait for other work that waits for a turn. */
  run<T>(origin: string, work: () => Promise<T>): Promise<T> {
    const origins = [origin];
    return this.take({ origins: () => origins }, (turn) => {
      turn.with(origins);
      return work();
    });
  }

  /** The same for work that several have caused. */
  async take<T>(caused: CausedWork, work: (turn: OriginTurn) => Promise<T>): Promise<T> {
    const turn = await this.#begin(caused);
    try {
      return await work(turn);
    } finally {
      this.#end(turn, caused.roomId);
    }
  }

  /** How many events of a room make a piece of work that others can wait for, by what they have cost lately. */
  eventsAtOnce(roomId: string): number {
    const eachMs = this.#rooms.perEvent(roomId) ?? 0;
    return eachMs === 0 ? mostEvents : Math.max(fewestEvents, Math.min(mostEvents, Math.floor(pieceMs / eachMs)));
  }

  #begin(caused: CausedWork): Promise<Running> | Running {
    if (this.#waiting.size === 0) {
      const turn = this.#place(caused, this.#usedBy(caused));
      if (turn) return turn;
    }
    const sinceMs = this.clock.monotonicMs();
    return new Promise((resolve) => {
      this.#waiting.add({
        ...caused,
        begin: (turn) => {
          this.#waitedS.observe({}, (this.clock.monotonicMs() - sinceMs) / 1_000);
          resolve(turn);
        },
      });
      this.#next();
    });
  }

  #end(turn: Running, roomId: string | undefined): void {
    turn.timer?.cancel();
    if (turn.holdsPlace) this.#giveUp(turn, roomId);
    else this.#slow--;
    this.#next();
  }

  /** Has those pay for a piece of work who have caused it; from now on it counts no more. */
  #giveUp(turn: Running, roomId: string | undefined): void {
    this.#count();
    this.#running.delete(turn);
    turn.holdsPlace = false;
    if (turn.isHeavy) this.#heavy--;
    const { origins } = turn;
    const usedMs = this.#meterMs - turn.meterMs;
    for (const origin of origins) this.#origins.add(origin, usedMs / origins.length, 1);
    if (roomId !== undefined) this.#rooms.add(roomId, usedMs, origins.length);
  }

  #count(): void {
    const nowMs = this.clock.threadCpuMs();
    if (this.#running.size > 0) this.#meterMs += (nowMs - this.#countedMs) / this.#running.size;
    this.#countedMs = nowMs;
  }

  #usedBy({ origins, roomId }: CausedWork): number {
    let least: number | undefined;
    for (const origin of origins()) {
      const used = this.#origins.of(origin);
      if (least === undefined || used < least) least = used;
    }
    return Math.max(least ?? 0, roomId === undefined ? 0 : this.#rooms.of(roomId));
  }

  /** Begins work that has used so much, where there is a place for it. */
  #place(caused: CausedWork, usedMs: number): Running | undefined {
    if (this.#running.size >= places) return undefined;
    const isHeavy = usedMs > this.#muchMs;
    if (isHeavy && this.#heavy >= heavyPlaces) return undefined;
    this.#count();
    const turn = new Running(isHeavy, this.#meterMs);
    this.#running.add(turn);
    if (isHeavy) this.#heavy++;
    turn.timer = this.clock.after(slowAfterMs, () => this.#noteSlow(turn, caused));
    return turn;
  }

  get #muchMs(): number {
    return Math.max(littleMs, muchMore * this.#origins.usual);
  }

  #noteSlow(turn: Running, { isSlow, roomId }: CausedWork): void {
    if (this.#slow >= maxSlow) return;
    this.#giveUp(turn, roomId);
    this.#slow++;
    isSlow?.();
    this.#next();
  }

  #next(): void {
    while (this.#waiting.size > 0 && this.#running.size < places) {
      const mayBeHeavy = this.#heavy < heavyPlaces;
      const muchMs = this.#muchMs;
      let first: Waiting | undefined;
      let leastMs = Infinity;
      for (const waiting of this.#waiting) {
        const usedMs = this.#usedBy(waiting);
        if (usedMs >= leastMs || (usedMs > muchMs && !mayBeHeavy)) continue;
        [first, leastMs] = [waiting, usedMs];
      }
      const turn = first && this.#place(first, leastMs);
      if (!first || !turn) return;
      this.#waiting.delete(first);
      first.begin(turn);
    }
  }
}
