import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { RoomHooks } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
import { selectPoliciesOf } from './retention.query.js';

/** Another process may have stored a new policy. */
const cacheMs = 60_000;

/** How long messages live: `m.room.retention` within the bounds of the settings, or the server's default (MSC1763). */
@Injectable()
export class RetentionPolicies implements OnModuleInit {
  /** By room; `Infinity` where there is no limit. */
  readonly #lifetimes = new LRUCache<string, number>({ maxSize: 50_000, sizeCalculation: () => 1, ttl: cacheMs });

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  onModuleInit(): void {
    if (!this.isEnabled) return;
    this.hooks.subscribe({
      onElsewhere: (news) => {
        if (news === undefined) this.#lifetimes.clear();
        for (const roomId of news?.states ?? []) this.#lifetimes.delete(roomId);
      },
      afterCommit: ({ roomId, events }) => {
        if (events.some(({ event }) => event.type === 'm.room.retention')) this.#lifetimes.delete(roomId);
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
    const missing: string[] = [];
    for (const roomId of roomIds) {
      const lifetimeMs = this.#lifetimes.get(roomId);
      if (lifetimeMs === undefined) missing.push(roomId);
      else if (lifetimeMs < Infinity) since.set(roomId, now - lifetimeMs);
    }
    if (missing.length === 0) return since;
    const policies = await selectPoliciesOf(this.database, missing);
    const events = await this.events.events(policies.values());
    for (const roomId of missing) {
      const content = events.get(policies.get(roomId) ?? '')?.content;
      const lifetimeMs = this.lifetimeMs(content) ?? Infinity;
      this.#lifetimes.set(roomId, lifetimeMs);
      if (lifetimeMs < Infinity) since.set(roomId, now - lifetimeMs);
    }
    return since;
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
