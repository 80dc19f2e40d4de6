import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Clock, Config, Logger, Semaphore, SingleFlight } from '@rookery/platform';
import {
  defineRole,
  FollowerSharing,
  type Role,
  type SharedFollower,
  type Stream,
  Streams,
} from '@rookery/replication';
import { EventStore } from '../store/event-store.js';
import { eventsStream } from '../store/room-ids.js';
import { acceptInvite } from './invite-acceptance.js';
import { openInvites } from './open-invites.query.js';

/** Invites that are being accepted or wait for that; further ones are left to their users. */
const maxPending = 1000;
/** Joins that are asked for at a time: each holds a connection to the process that writes until other servers have answered. */
const maxJoins = 32;
const maxAttempts = 5;
const firstPauseMs = 1000;
/** How long those that come are waited for, before others are looked for, milliseconds: some servers are slow. */
const patienceMs = 2_000;
/** Invites that have waited for longer are left to their users, milliseconds. */
const longestWaitMs = 3_600_000;
/** Invites that are looked at together, and positions that are looked through at a time. */
const maxInvites = 100;
const maxPositions = 10_000;
/** What comes meanwhile is looked for together. */
const pauseMs = 100;
const saveEveryMs = 5_000;

/** The duty of noticing invites that are to be accepted. */
export const inviteAcceptorRole: Role = defineRole('invite_acceptor');

/**
 * Joins rooms for local users who are invited, as far as `auto_accept_invites` says so: soon after the invite was stored, and after a crash as
 * well. Whoever has the duty notices it; the join is the writing process's.
 */
@Injectable()
export class AutoAcceptInvites implements OnModuleInit, OnModuleDestroy {
  readonly #pending = new SingleFlight<void>();
  readonly #joins = new Semaphore(maxJoins);
  readonly #stopping = new AbortController();
  readonly #stream: Stream<string>;
  #follower: SharedFollower | undefined;

  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly sharing: FollowerSharing,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
    streams: Streams,
  ) {
    this.#stream = streams.of(eventsStream);
  }

  onModuleInit(): void {
    if (!this.config.get('auto_accept_invites.enabled')) return;
    this.#follower = this.sharing.share({
      ...{ name: 'auto_accept_invites', stream: eventsStream.name, role: inviteAcceptorRole, pauseMs, saveEveryMs },
      startAt: 'now',
      advance: (after, upTo, signal) => this.#look(after, Math.min(upTo, after + maxPositions), signal),
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopping.abort();
    await this.#pending.settled();
  }

  /** Resolves when all that could be read has been noticed, and nothing is under way here. */
  async settled(): Promise<void> {
    await this.#follower?.caughtUp();
    await this.#pending.settled();
  }

  /** @returns how far that was */
  async #look(after: number, upTo: number, signal: AbortSignal): Promise<number> {
    const sinceTs = this.clock.nowMs() - longestWaitMs;
    const found = await openInvites(this.database, after, upTo, sinceTs, maxInvites);
    const events = await this.events.many(found.map(({ eventId }) => eventId));
    const begun = [...events.values()]
      .filter(({ event }) => this.#isWanted(event))
      .map(({ event }) => this.#start(event));
    if (begun.length > 0) {
      const over = new AbortController();
      const ended = AbortSignal.any([over.signal, signal]);
      const areDone = await Promise.race([
        Promise.all(begun).then(() => true),
        this.clock.sleep(patienceMs, ended).then(() => false),
      ]);
      over.abort();
      // At a stop nobody sees to the others any more: whoever goes on begins with these.
      if (!areDone) signal.throwIfAborted();
    }
    return found.length < maxInvites ? upTo : (found.at(-1)?.streamOrdering ?? upTo);
  }

  #isWanted({ sender, content }: RoomEvent): boolean {
    if (this.config.get('auto_accept_invites.only_for_direct_messages') && content['is_direct'] !== true) return false;
    return !this.config.get('auto_accept_invites.only_from_local_users') || domainOf(sender) === this.config.serverName;
  }

  async #start(invite: RoomEvent): Promise<void> {
    const { eventId, roomId } = invite;
    if (this.#stopping.signal.aborted) return;
    if (this.#pending.size >= maxPending) {
      this.logger.warn('Too many invites at a time; one is not accepted for its user', { roomId });
      return;
    }
    await this.#pending.run(eventId, () => this.#accept(invite));
  }

  /** Never rejects. Servers that cannot be reached are tried again, at growing intervals. */
  async #accept({ eventId, roomId, stateKey: userId }: RoomEvent): Promise<void> {
    const { signal } = this.#stopping;
    for (let attempt = 1; !signal.aborted; attempt++) {
      try {
        return await this.#joins.run(() => this.#stream.atWriter(acceptInvite, { eventId }), { signal });
      } catch (error) {
        if (attempt === maxAttempts) {
          this.logger.warn('An invite could not be accepted for its user', { roomId, userId, err: error });
          return;
        }
      }
      await this.clock.sleep(firstPauseMs * 2 ** (attempt - 1), signal);
    }
  }
}
