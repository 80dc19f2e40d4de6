import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { type PresenceName, PresenceService } from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Metrics } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import type { TakeMembers } from '../request/device-members.js';
import type { SyncToken } from '../request/sync-token.js';
import { SyncService } from '../sync.service.js';
import { type ConnectionIdentity, type ConnectionMemory, SlidingConnections, unknownPosition } from './connections.js';
import { formatPosition, parsePosition } from './position.js';
import type { SlidingRequest } from './request.js';
import { type Draft, SlidingDrafts } from './sliding-drafts.js';

/** Who asks, and how. */
export interface SlidingSyncQuery {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly request: SlidingRequest;
  /** What the last answer gave; absent for a new connection. */
  readonly pos: string | undefined;
  /** How the user counts as present while this request goes on. */
  readonly setPresence: PresenceName;
  /** How long to wait for news, milliseconds. */
  readonly timeoutMs: number;
}

/** One answer that is asked for. */
interface Asked {
  readonly query: SlidingSyncQuery;
  readonly memory: ConnectionMemory | undefined;
  readonly since: SyncToken | undefined;
  /** Digest of the lists in the answer before. */
  readonly lists: string | undefined;
  readonly takeMembers: TakeMembers;
}

/** Simplified sliding sync (MSC4186): windows on lists of rooms, and only what is new in them. */
@Injectable()
export class SlidingSyncService {
  constructor(
    private readonly drafts: SlidingDrafts,
    private readonly connections: SlidingConnections,
    private readonly sync: SyncService,
    private readonly presence: PresenceService,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly metrics: Metrics,
  ) {}

  /**
   * Answers at once where there is news or the connection is new, else when there is, or when the time is over.
   * @param signal ends the wait early; then the connection is left as it was
   * @throws MatrixError 400 `M_UNKNOWN_POS`
   */
  async answer(query: SlidingSyncQuery, signal: AbortSignal): Promise<JsonObject> {
    const ended = this.presence.syncing(query.userId, query.deviceId, query.setPresence);
    try {
      return await this.#answer(query, signal);
    } finally {
      ended();
    }
  }

  async #answer(query: SlidingSyncQuery, signal: AbortSignal): Promise<JsonObject> {
    const position = query.pos === undefined ? undefined : parsePosition(query.pos);
    const identity: ConnectionIdentity = {
      userId: query.userId,
      deviceId: query.deviceId ?? '',
      connId: query.request.connId,
    };
    const memory = position && (await this.connections.resume(identity, position.connection));
    const since = position?.token;
    // A client that comes from the future, or from a time that was lost, starts anew.
    if (since && (await this.sync.placed(since, signal)).isLost) throw unknownPosition();
    const key = memory?.key ?? this.connections.newKey();
    const came = position && { answer: position.answer, home: position.token.home };
    const members = this.connections.membersOf(key, came);
    await members.begin();
    const answer = this.connections.newAnswer();
    const takeMembers: TakeMembers = (rooms) => members.take(rooms, answer);
    const draft = await this.#await({ query, memory, since, lists: position?.lists, takeMembers }, signal);
    // Perhaps nobody hears this answer, so it must not count as sent.
    if (signal.aborted && query.pos !== undefined) return { pos: query.pos, lists: {}, rooms: {}, extensions: {} };
    const saved = await this.connections.save(identity, key, memory, draft.changes);
    const pos = formatPosition({
      connection: saved.position,
      token: { ...draft.now, home: members.home },
      answer,
      lists: digestOf(draft.lists),
    });
    return { pos, lists: draft.lists, rooms: draft.rooms, extensions: draft.extensions };
  }

  async #await({ query, memory, since, lists, takeMembers }: Asked, signal: AbortSignal): Promise<Draft> {
    const isNewList = (now: JsonObject): boolean => lists !== undefined && lists !== '' && lists !== digestOf(now);
    const deadlineMs = this.clock.monotonicMs() + query.timeoutMs;
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait =
        since !== undefined && leftMs > 0
          ? this.notifier.begin(query.userId, { timeoutMs: leftMs, signal })
          : undefined;
      const startedMs = this.clock.monotonicMs();
      try {
        const draft = await this.drafts.draft({ ...query, memory, since, takeMembers });
        this.metrics
          .histogram('synapse_sliding_sync_processing_time')
          .observe({ initial: String(memory === undefined) }, (this.clock.monotonicMs() - startedMs) / 1000);
        if (!draft.isEmpty || wait === undefined || isNewList(draft.lists)) return draft;
        if ((await wait.outcome) !== 'news') return draft;
      } finally {
        wait?.end();
      }
    }
  }
}

const digestOf = (lists: JsonObject): string =>
  createHash('sha1').update(JSON.stringify(lists)).digest('base64url').slice(0, 11);
