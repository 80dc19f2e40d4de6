import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { Clock, Config, Logger, Metrics } from '@rookery/platform';
import { cursorOf, Follower, Notifier, saveCursor } from '@rookery/replication';
import { type EventBatch, isServable, RoomHooks } from '@rookery/rooms';
import { EventTexts } from './event-texts.js';
import { PastAudiences } from './past-audiences.js';
import { type Audience, audienceOf, RemoteAudience } from './remote-audience.js';
import {
  deleteRoomMarks,
  hiddenType,
  eventsToSend,
  type OutgoingEvent,
  type RoomMark,
  writeRoomMarks,
} from './sender.query.js';
import { processingMetrics } from './sender-metrics.js';

/** Name of the cursor, and in metrics. */
export const eventCursor = 'federation_sender';
/** Events of one step, and places of servers in rooms that it writes. */
const maxEvents = 200;
const maxMarks = 5_000;
/** Events that wait to be looked at; with more they are read from the database. */
const maxPending = 20_000;
/** An idle server writes its position no oftener. */
const saveEveryMs = 5_000;

/** An event with the servers that were in its room, before or after it. */
interface Addressed extends OutgoingEvent {
  /** `undefined` where it is to be looked up. */
  readonly audience: Audience | undefined;
  /** The server that made it and asked us to send it on. */
  readonly except?: string | undefined;
  /** Further servers: whose users were made to leave. */
  readonly more: readonly string[];
  /** When it was stored, milliseconds since 1970, where that is known. */
  readonly storedMs?: number;
}

/** Some of the events between two places, in their order, and up to where that is all of them. */
interface Step {
  readonly events: readonly Addressed[];
  readonly reached: number;
}

/** What one step of the feed found. */
export interface FeedStep {
  /** Events by server, in stream order; the database knows of them. */
  readonly byServer: ReadonlyMap<string, readonly OutgoingEvent[]>;
  /** For each event that goes anywhere, to how many servers. */
  readonly destinationCounts: readonly number[];
  /** How many events were looked at. */
  readonly looked: number;
}

/** Where the feed leads to. */
export interface FeedEnd {
  /** Nothing is looked at before. Never rejects; resolves early where the feed stops. */
  readonly ready: Promise<unknown>;
  /**
   * Looks up what is to be known of servers that are to get something. A rejection brings the same once more; nobody knows of it
   * then, who reads the database meanwhile and would send it.
   */
  prepare(servers: readonly string[]): Promise<void>;
  /** Told what there is for servers, as soon as the database knows. */
  take(step: FeedStep): void;
}

/**
 * Follows the events of local users, and those of others that are to be sent on for them (joins, leaves and knocks that came by way of this
 * server), and hands them to the servers in their rooms. While the server runs, who is in a room is
 * noted when an event is stored, without a query; after a restart it is worked out from the database. Rooms without other
 * servers cost a look at a list.
 */
@Injectable()
export class FederationEventFeed implements OnModuleInit {
  #pending: Addressed[] = [];
  /** Of events behind this place everything is noted. */
  #notedFrom = Number.MAX_SAFE_INTEGER;
  #follower: Follower | undefined;
  readonly #measure;

  // Nine parameters: four of them are what any follower of a stream takes.
  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly hooks: RoomHooks,
    private readonly audience: RemoteAudience,
    private readonly texts: EventTexts,
    metrics: Metrics,
  ) {
    this.#measure = processingMetrics(metrics, eventCursor);
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      afterCommit: (batch) => this.#note(batch),
      onRoomPurged: deleteRoomMarks,
      onEventsPurged: (tx, _roomId, eventIds) => {
        tx.unlessRolledBack(() => this.texts.forget(eventIds));
        return Promise.resolve();
      },
    });
  }

  /** Begins with what comes from now on, unless there is a position already. Before anything can be sent. */
  async open(): Promise<void> {
    const { database, notifier } = this;
    if ((await cursorOf(database, eventCursor)) === undefined)
      await database.write((tx) => saveCursor(tx, eventCursor, notifier.position('events')), { name: 'save_cursor' });
  }

  /** Begins to follow, from where it was. @throws what the database throws; afterwards a failure is tried again */
  async start(end: FeedEnd): Promise<void> {
    const { database, notifier, clock, logger } = this;
    this.#notedFrom = notifier.position('events');
    this.#follower = new Follower({
      ...{ name: eventCursor, stream: 'events', database, notifier, clock, logger, saveEveryMs },
      advance: async (after, upTo, signal) => {
        await end.ready;
        signal.throwIfAborted();
        const reached = await this.#advance(after, upTo, end);
        this.#measure.reached(reached);
        return reached;
      },
    });
    await this.#follower.start();
  }

  async stop(): Promise<void> {
    await this.#follower?.stop();
  }

  #note(batch: EventBatch): void {
    const { roomId, events, backfilled, room } = batch;
    if (backfilled) return;
    // What is seen after such a batch does not count for each of its events.
    const isUnsure = events.length > 1 && this.#changesAudience(batch);
    const nowMs = this.clock.nowMs();
    for (const stored of events) {
      const { event } = stored;
      if (event.redacts !== undefined) this.texts.forget([event.redacts]);
      const target = event.type === 'm.room.member' && event.stateKey !== undefined ? domainOf(event.stateKey) : '';
      if (!isUnsure && room.remoteServers.length === 0 && (target === '' || target === this.config.serverName))
        continue;
      if (domainOf(event.sender) !== this.config.serverName && stored.onBehalfOf === undefined) continue;
      if (!isServable(stored) || event.type === hiddenType || stored.isHandedOver) continue;
      const { aclId, servers } = audienceOf(room);
      this.#pending.push({
        ...{ eventId: event.eventId, roomId, streamOrdering: stored.streamOrdering },
        // Who is shut out by it hears that much.
        audience: isUnsure ? undefined : { servers, aclId: aclId === event.eventId ? stored.replacesState : aclId },
        storedMs: nowMs,
        except: stored.onBehalfOf,
        more: leaves(event.content['membership']) && target !== this.config.serverName && target !== '' ? [target] : [],
      });
    }
    if (this.#pending.length <= maxPending) return;
    this.#notedFrom = this.#pending.reduce((top, { streamOrdering }) => Math.max(top, streamOrdering), 0);
    this.#pending = [];
  }

  /** Whether others come, go or are shut out by a batch. */
  #changesAudience({ events, moves, room }: EventBatch): boolean {
    if (moves.some((move) => move.membership !== 'invite' && domainOf(move.userId) !== this.config.serverName))
      return true;
    const aclId = room.remoteServers.length > 0 ? audienceOf(room).aclId : undefined;
    return aclId !== undefined && events.some(({ event }) => event.eventId === aclId);
  }

  async #advance(after: number, upTo: number, end: FeedEnd): Promise<number> {
    const step =
      after < this.#notedFrom ? await this.#recall(after, Math.min(upTo, this.#notedFrom)) : this.#due(after, upTo);
    if (step.events.length === 0) return step.reached;
    const addressed = await this.#addressed(step.events, after);
    const byServer = new Map<string, OutgoingEvent[]>();
    const marks = new Map<string, RoomMark>();
    const destinationCounts: number[] = [];
    let { reached } = step;
    let looked = 0;
    for (const { audience, more, except, storedMs: _storedMs, ...event } of addressed) {
      const servers = await this.audience.allowed(audience);
      if (looked > 0 && marks.size + servers.length > maxMarks) break;
      const all =
        more.length === 0 ? servers : new Set([...servers, ...more.filter((one) => this.audience.mayReach(one))]);
      let count = 0;
      for (const destination of all) {
        if (destination === except) continue;
        const events = byServer.get(destination);
        if (events) events.push(event);
        else byServer.set(destination, [event]);
        marks.set(`${destination}\n${event.roomId}`, { ...event, destination });
        count++;
      }
      if (count > 0) destinationCounts.push(count);
      looked++;
    }
    if (looked < addressed.length) reached = addressed[looked - 1]?.streamOrdering ?? reached;
    if (byServer.size > 0) await end.prepare([...byServer.keys()]);
    if (marks.size > 0)
      await this.database.write((tx) => writeRoomMarks(tx, [...marks.values()]), { name: 'federation_queue' });
    end.take({ byServer, destinationCounts, looked });
    this.#measure.looked(addressed.slice(0, looked), this.clock.nowMs());
    const last = reached;
    this.#pending = this.#pending.filter((event) => event.streamOrdering > last);
    return reached;
  }

  /** Looks up who was in the rooms of events of which that is not known. */
  async #addressed(
    events: readonly Addressed[],
    after: number,
  ): Promise<readonly (Addressed & { readonly audience: Audience })[]> {
    const unsure = new Set(events.flatMap(({ audience, roomId }) => (audience === undefined ? roomId : [])));
    const { database, config } = this;
    const past = unsure.size > 0 && (await PastAudiences.read(database, config.serverName, [...unsure], after));
    return events.map((event) => ({
      ...event,
      audience: event.audience ?? (past ? past.before(event.roomId, event.streamOrdering) : nobody),
    }));
  }

  /** What was noted between two places, and how far that goes. */
  #due(after: number, upTo: number): Step {
    if (this.#pending.length === 0) return { events: [], reached: upTo };
    const due = this.#pending
      .filter((event) => event.streamOrdering > after && event.streamOrdering <= upTo)
      .sort(byOrdering);
    if (due.length <= maxEvents) return { events: due, reached: upTo };
    const events = due.slice(0, maxEvents);
    return { events, reached: events.at(-1)?.streamOrdering ?? upTo };
  }

  /** The same from the database. */
  async #recall(after: number, upTo: number): Promise<Step> {
    const { database, config } = this;
    const rows = await eventsToSend(database, config.serverName, after, upTo, maxEvents);
    const reached = rows.length < maxEvents ? upTo : (rows.at(-1)?.streamOrdering ?? upTo);
    const events = rows
      .filter(({ type }) => type !== hiddenType)
      .map(({ eventId, roomId, streamOrdering, sender, stateKey, membership }): Addressed => {
        const target = stateKey !== undefined && leaves(membership) ? domainOf(stateKey) : config.serverName;
        const more = target === config.serverName ? [] : [target];
        const server = domainOf(sender);
        const except = server === config.serverName ? undefined : server;
        return { ...{ eventId, roomId, streamOrdering, except }, audience: undefined, more };
      });
    return { reached, events };
  }
}

const nobody: Audience = { servers: [], aclId: undefined };
const byOrdering = (a: Addressed, b: Addressed): number => a.streamOrdering - b.streamOrdering;

const leaves = (membership: unknown): boolean => membership === 'leave' || membership === 'ban';
