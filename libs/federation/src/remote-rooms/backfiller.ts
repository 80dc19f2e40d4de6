import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type RoomEvent, roomVersionRules } from '@rookery/events';
import { FederationClient, federationPath, FederationRequestError } from '@rookery/federation-client';
import { Clock, Config, Logger, SingleFlight } from '@rookery/platform';
import { type BackwardGap, backwardGaps, forgetFailedPulls, noteFailedPulls, RoomStateReader } from '@rookery/rooms';
import { leadingTo } from '@rookery/state-res';
import { PastEvents } from './past-events.js';
import { PduChecker } from './pdu-checker.js';
import { RoomHosts } from './room-hosts.js';

/** Gaps of a room that are looked at, and those that one request asks about. */
const maxGaps = 100;
const gapsAtOnce = 5;
/** Events that are asked for at a time. */
const maxEvents = 100;
const maxServers = 4;
/** After this much time no further server is asked: somebody waits; milliseconds. */
const patienceMs = 20_000;
const maxBytes = 32 * 1_048_576;
/** What nobody gave is asked for again after a minute, then two, four, at last a day; milliseconds. */
const firstPauseMs = 60_000;
const longestPauseMs = 24 * 3_600_000;

/** Fetches the history of rooms that other servers have and this one has not. */
@Injectable()
export class Backfiller {
  readonly #running = new SingleFlight<boolean>();
  readonly #logger: Logger;

  constructor(
    private readonly client: FederationClient,
    private readonly checker: PduChecker,
    private readonly past: PastEvents,
    private readonly hosts: RoomHosts,
    private readonly state: RoomStateReader,
    private readonly database: Database,
    private readonly config: Config,
    private readonly clock: Clock,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * Fetches up to `limit` events before one of a room's gaps. Several callers share one attempt.
   * @param depth where somebody reads: gaps there come first
   * @returns whether anything came
   * @spec server-server-api#backfilling-and-retrieving-missing-events
   */
  backfill(roomId: string, limit: number, depth = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    return this.#running.run(roomId, () => this.#backfill(roomId, Math.min(limit, maxEvents), depth));
  }

  async #backfill(roomId: string, limit: number, depth: number): Promise<boolean> {
    const untilMs = this.clock.nowMs() + patienceMs;
    const gaps = await backwardGaps(this.database, roomId, maxGaps);
    const due = gaps.filter((gap) => this.#isDue(gap));
    // What lies at or before the reader's place comes first, the nearest of it at the head.
    const wanted = [...due.filter((gap) => gap.depth <= depth), ...due.filter((gap) => gap.depth > depth).reverse()]
      .slice(0, gapsAtOnce)
      .map((gap) => gap.event_id);
    if (wanted.length === 0) return false;
    let anyAnswered = false;
    for (const server of await this.hosts.likely(roomId, maxServers)) {
      if (this.clock.nowMs() >= untilMs) break;
      const found = await this.#ask(server, roomId, wanted, limit);
      if (found === undefined) continue;
      anyAnswered = true;
      if (found.length === 0) continue;
      const stored = await this.past.take(server, roomId, found);
      if (stored.length === 0) continue;
      this.hosts.answered(roomId, server);
      // In a full answer there was no place for the rest.
      await this.#note(roomId, found.length < limit ? wanted : stored, new Set(stored));
      return true;
    }
    // Who is down today may be up tomorrow; what those who are up do not have is hardly found in an hour.
    if (anyAnswered) await this.#note(roomId, wanted, new Set());
    return false;
  }

  #isDue({ num_attempts: attempts, last_attempt_ts: lastTs }: BackwardGap): boolean {
    if (attempts === null || lastTs === null) return true;
    return this.clock.nowMs() >= lastTs + Math.min(firstPauseMs * 2 ** (attempts - 1), longestPauseMs);
  }

  async #note(roomId: string, wanted: readonly string[], stored: ReadonlySet<string>): Promise<void> {
    const here = wanted.filter((id) => stored.has(id));
    const failed = wanted.filter((id) => !stored.has(id));
    const nowTs = this.clock.nowMs();
    await this.database.write(
      async (tx) => {
        if (here.length > 0) await forgetFailedPulls(tx, roomId, here);
        if (failed.length > 0) await noteFailedPulls(tx, roomId, failed, nowTs, 'no server gave it');
      },
      { name: 'note_backfill' },
    );
  }

  /** What a server has before some events, oldest first; `undefined` when it does not answer. */
  async #ask(
    server: string,
    roomId: string,
    wanted: readonly string[],
    limit: number,
  ): Promise<RoomEvent[] | undefined> {
    const version = (await this.state.versions([roomId])).get(roomId);
    const rules = version === undefined ? undefined : roomVersionRules(version);
    if (!rules) return undefined;
    try {
      const answer = await this.client.requestExactJson({
        destination: server,
        method: 'GET',
        path: federationPath`/_matrix/federation/v1/backfill/${roomId}`,
        query: { v: wanted, limit },
        ...{ retries: 'none', awaited: true },
        ...{ maxBytes, timeoutMs: Math.min(patienceMs, this.config.get('federation.client_timeout')) },
      });
      const pdus = Array.isArray(answer['pdus']) ? answer['pdus'].slice(0, maxEvents) : [];
      return leadingTo(wanted, await this.checker.sound(pdus, rules, roomId));
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      this.#logger.debug('Another server gave no history', { destination: server, roomId, reason: error.message });
      // A refusal is an answer.
      return error.status !== undefined && error.status < 500 ? [] : undefined;
    }
  }
}
