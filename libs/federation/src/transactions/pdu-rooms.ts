import { Injectable } from '@nestjs/common';
import { roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { Clock, Lifecycle } from '@rookery/platform';
import { RoomServers, RoomStateReader } from '@rookery/rooms';
import { RemoteJoins } from '../remote-rooms/remote-joins.js';

/** How long events wait for a join that is under way, milliseconds: whoever sends them waits for the answer. */
const patienceMs = 20_000;
/** And the events of how many servers: what they sent is held meanwhile. With more, nobody further waits. */
const maxWaiting = 100;

/** What counts for all events of a room that a server sends. */
export interface RoomFacts {
  readonly rules: RoomVersionRules;
  /** Somebody of this server is in it. */
  readonly isOurs: boolean;
  /** By the room's access control list. */
  readonly mayTakePart: boolean;
}

/** Knows the rooms of events that arrive, as far as this server is in them. */
@Injectable()
export class PduRooms {
  #waiting = 0;

  constructor(
    private readonly state: RoomStateReader,
    private readonly servers: RoomServers,
    private readonly joins: RemoteJoins,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
  ) {}

  /**
   * What counts for a server's events of some rooms; rooms that are not known are absent. The others of a room know of a join, and send
   * what is said from then on, before this server has the room: such a join is waited for, for a while. Nobody would send it again.
   */
  async factsOf(origin: string, roomIds: readonly string[]): Promise<Map<string, RoomFacts>> {
    const facts = new Map<string, RoomFacts>();
    if (roomIds.length === 0) return facts;
    const entering = roomIds.filter((roomId) => this.joins.isEntering(roomId));
    if (entering.length > 0) await this.#entered(entering);
    const versions = await this.state.versions(roomIds);
    const open = await this.servers.openTo(origin, [...versions.keys()]);
    for (const [roomId, version] of versions) {
      const rules = roomVersionRules(version);
      if (!rules) continue;
      const isOurs = await this.servers.isHere(roomId);
      facts.set(roomId, { rules, isOurs, mayTakePart: open.has(roomId) });
    }
    return facts;
  }

  async #entered(roomIds: readonly string[]): Promise<void> {
    const outside: string[] = [];
    for (const roomId of roomIds) if (!(await this.servers.isHere(roomId))) outside.push(roomId);
    if (outside.length === 0 || this.#waiting >= maxWaiting) return;
    const given = new AbortController();
    this.#waiting++;
    try {
      await Promise.race([
        Promise.all(outside.map((roomId) => this.joins.entered(roomId))),
        this.clock.sleep(patienceMs, AbortSignal.any([given.signal, this.lifecycle.stopping])),
      ]);
    } finally {
      given.abort();
      this.#waiting--;
    }
  }
}
