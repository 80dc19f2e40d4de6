import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Cache, Clock, Config, ownTurn } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
import { selectPoliciesOf, selectRoomsBehind } from './retention.query.js';

const dayMs = 86_400_000;
/** Rooms whose policies are looked up at once. */
const roomsAtOnce = 500;

/** Which rooms are purged how often: those whose lifetime lies in `shortestMs < lifetime <= longestMs`. */
export interface PurgeJob {
  readonly shortestMs: number;
  readonly longestMs: number;
  readonly intervalMs: number;
}

/** How long messages live: `m.room.retention` within the bounds of the settings, or the server's default (MSC1763). */
@Injectable()
export class RetentionPolicies implements OnModuleInit {
  /** By room; `Infinity` where there is no limit. */
  readonly #lifetimes: Cache<string, number>;

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
    private readonly clock: Clock,
  ) {
    this.#lifetimes = new Cache(config, 'retention_lifetimes', {
      ...{ invalidation: 'stream events', elsewhere: 'told', max: 100_000 },
    });
    config.onReload((changed) => {
      if ([...changed].some((setting) => setting.startsWith('retention.'))) this.#lifetimes.clear();
    });
  }

  onModuleInit(): void {
    if (!this.isEnabled) return;
    this.hooks.subscribe({
      onElsewhere: (news) => {
        if (news === undefined) this.#lifetimes.clear();
        for (const roomId of news?.states ?? []) this.#lifetimes.delete(roomId);
      },
      afterCommit: (batch) => {
        if (batch.changed('m.room.retention')) this.#lifetimes.delete(batch.roomId);
      },
    });
  }

  get isEnabled(): boolean {
    return this.config.get('retention.enabled');
  }

  /**
   * Since when messages are still to be shown, by room, milliseconds since the epoch; rooms without a limit are absent. At
   * most two queries, none for rooms looked at lately, and none at all where the settings know no retention.
   */
  async shownSince(roomIds: ReadonlySet<string>): Promise<ReadonlyMap<string, number>> {
    const since = new Map<string, number>();
    if (!this.isEnabled) return since;
    const now = this.clock.nowMs();
    const lifetimes = await this.#lifetimes.fetchMany(roomIds, (missing) => this.#read(missing));
    for (const [roomId, lifetimeMs] of lifetimes) if (lifetimeMs < Infinity) since.set(roomId, now - lifetimeMs);
    return since;
  }

  async #read(roomIds: readonly string[]): Promise<Map<string, number>> {
    const policies = await selectPoliciesOf(this.database, roomIds);
    const events = await this.events.events(policies.values());
    return new Map(
      roomIds.map((roomId) => {
        const content = events.get(policies.get(roomId) ?? '')?.content;
        return [roomId, this.lifetimeMs(content) ?? Infinity];
      }),
    );
  }

  /** What the settings have purged how often: everything once a day where they say nothing. */
  jobs(): PurgeJob[] {
    const given = this.config.get('retention.purge_jobs') as readonly Record<string, number | undefined>[];
    return (given.length > 0 ? given : [{}]).map((job) => ({
      shortestMs: job['shortest_max_lifetime'] ?? -1,
      longestMs: job['longest_max_lifetime'] ?? Infinity,
      intervalMs: job['interval'] ?? dayMs,
    }));
  }

  /**
   * How long messages of each room of the server may live; rooms without a limit are absent. By room, some at a time: to look for policies
   * among the state of all rooms would mean to read it.
   */
  async *lifetimes(): AsyncGenerator<readonly [roomId: string, lifetimeMs: number]> {
    for (let after = ''; ;) {
      const roomIds = await selectRoomsBehind(this.database, after, roomsAtOnce);
      for (const [roomId, lifetimeMs] of await this.#read(roomIds))
        if (lifetimeMs < Infinity) yield [roomId, lifetimeMs];
      const last = roomIds.at(-1);
      if (last === undefined || roomIds.length < roomsAtOnce) return;
      after = last;
      await ownTurn();
    }
  }

  /** How long messages live in a room with this policy, if any; `undefined` for ever. */
  lifetimeMs(policy: Readonly<JsonObject> | undefined): number | undefined {
    const wanted = policy?.['max_lifetime'];
    if (typeof wanted !== 'number' || !Number.isSafeInteger(wanted) || wanted < 0) {
      return this.config.get('retention.default_policy.max_lifetime') ?? undefined;
    }
    const least = this.config.get('retention.allowed_lifetime_min') ?? 0;
    const most = this.config.get('retention.allowed_lifetime_max') ?? Infinity;
    return Math.min(Math.max(wanted, least), most);
  }
}
