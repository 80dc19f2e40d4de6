import { Injectable } from '@nestjs/common';
import { Database, type Db, type Tx } from '@rookery/database';
import { eventFromRow, redactEvent, roomVersionRules, type RoomEvent, type RoomVersionRules } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Cache, Config, ownTurn } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import {
  type EventRow,
  selectEvents,
  selectRedactions,
  selectStateEntries,
  selectStoredIds,
  selectVoidRedactions,
} from './event-store.query.js';
import { holdRooms } from './room-hold.query.js';
import { selectRemovalRedactions } from './removal-redactions.query.js';
import { type ClientTransaction, isRedactable, type StoredEvent } from '../model/stored-event.js';

/** What an event is reckoned with in the setting `event_cache_size`. */
const bytesPerEvent = 6 * 1024;

interface CachedEvent {
  readonly stored: StoredEvent;
  readonly sizeBytes: number;
}

/** What `event_json.internal_metadata` holds; the field's names. */
export interface InternalMetadata {
  txn_id?: string;
  device_id?: string;
  soft_failed?: boolean;
  policy_server_spammy?: boolean;
  out_of_band_membership?: boolean;
  send_on_behalf_of?: string;
  handed_over?: boolean;
}

/** @throws Error when a row names a version that this server does not know */
export function knownRules(version: string): RoomVersionRules {
  const rules = roomVersionRules(version);
  if (!rules) throw new Error(`Room version ${version} in the database is not known`);
  return rules;
}

function transactionOf(metadata: InternalMetadata, sender: string): ClientTransaction | undefined {
  if (metadata.txn_id === undefined || metadata.device_id === undefined) return undefined;
  return { userId: sender, deviceId: metadata.device_id, txnId: metadata.txn_id };
}

function fromRow(row: EventRow): StoredEvent {
  const event = eventFromRow(row.json, row.event_id, knownRules(row.room_version));
  const metadata = row.internal_metadata === '{}' ? {} : (JSON.parse(row.internal_metadata) as InternalMetadata);
  return {
    event,
    streamOrdering: row.stream_ordering,
    receivedTs: row.received_ts,
    outlier: !!row.outlier,
    rejectedReason: row.rejection_reason ?? undefined,
    softFailed: !!row.soft_failed,
    isSpammy: metadata.policy_server_spammy,
    transaction: transactionOf(metadata, event.sender),
    replacesState: row.prev_state ?? undefined,
    redactedBy: undefined,
    onBehalfOf: metadata.send_on_behalf_of,
    isHandedOver: metadata.handed_over,
  };
}

/** An event as it is after a redaction. */
export function pruned(stored: StoredEvent, redactionId: string): StoredEvent {
  return stored.redactedBy === undefined && isRedactable(stored.event.type)
    ? { ...stored, event: redactEvent(stored.event), redactedBy: redactionId }
    : stored;
}

/** Whether a redaction by `redactor` that lacked the redact level still counts: same server as the target's sender. */
export const sameServer = (redactor: string, sender: string): boolean => domainOf(redactor) === domainOf(sender);

/** An accepted event as a piece of state. */
export interface StateEntry {
  readonly eventId: string;
  readonly type: string;
  /** `undefined` for what is no state. */
  readonly stateKey: string | undefined;
  /** Of a member event. */
  readonly membership: string | undefined;
}

/** Events that are looked up before others get a turn. */
const idsPerTurn = 500;

/** @param eventIds `undefined` for what was looked at and is none of them, which takes its time, too */
async function* inParts(eventIds: Iterable<string | undefined>): AsyncGenerator<readonly string[]> {
  let some: string[] = [];
  let lookedAt = 0;
  let isMany = false;
  for (const eventId of eventIds) {
    if (lookedAt === idsPerTurn || some.length === idsPerTurn) {
      // Those who begin in the same turn have their first part in one of their own, too.
      await ownTurn();
      lookedAt = 0;
      isMany = true;
      if (some.length === idsPerTurn) {
        yield some;
        some = [];
      }
    }
    lookedAt++;
    if (eventId !== undefined) some.push(eventId);
  }
  if (isMany) await ownTurn();
  if (some.length > 0) yield some;
}

/**
 * Events by id, through a cache bounded in bytes. Redactions are applied here, so that no reader can forget them.
 */
@Injectable()
export class EventStore {
  readonly #cache: Cache<string, CachedEvent>;

  readonly #withRemovals: boolean;

  constructor(
    private readonly database: Database,
    config: Config,
    private readonly invalidations: Invalidations,
  ) {
    invalidations.on('events_of_users', {
      forget: ([roomId = '', sender = '']) => this.#dropOf(roomId, sender),
      forgetAll: () => undefined,
    });
    const max = (): number => config.get('event_cache_size') * bytesPerEvent;
    this.#withRemovals = config.get('experimental_features.msc4293_enabled');
    this.#cache = new Cache(config, 'get_event', {
      invalidation: 'on write',
      elsewhere: 'told',
      max,
      sizeOf: (entry) => entry.sizeBytes,
    });
    invalidations.on('get_event', this.#cache);
  }

  /**
   * Which of some rooms there are. They stay until the transaction ends, so that what it writes of them goes with them: one that is
   * just being deleted is waited for.
   */
  holdRooms(tx: Tx, roomIds: readonly string[]): Promise<ReadonlySet<string>> {
    return holdRooms(tx, roomIds);
  }

  /** The events that exist, by id; in two queries for those that are not cached, of many in parts. */
  async many(eventIds: Iterable<string>, db: Db = this.database): Promise<Map<string, StoredEvent>> {
    const found = new Map<string, StoredEvent>();
    const ids = Array.isArray(eventIds) ? (eventIds as readonly string[]) : [...eventIds];
    // A transaction waits for nothing but the database.
    if (ids.length <= idsPerTurn || db !== this.database) await this.#find(ids, db, found);
    else for await (const some of inParts(ids)) await this.#find(some, db, found);
    return found;
  }

  /** Reads events together with something else, and remembers those that nobody has redacted: {@link many} asks for them no more. */
  async readWhole<Found extends { readonly whole: readonly EventRow[] }>(read: () => Promise<Found>): Promise<Found> {
    const reading = this.#cache.begin();
    try {
      const found = await read();
      // Whether somebody's removal redacts them is asked with those that {@link many} reads.
      for (const row of this.#withRemovals ? [] : found.whole)
        if (!this.#cache.has(row.event_id)) reading.keep(row.event_id, whole(row));
      return found;
    } finally {
      reading.end();
    }
  }

  async #find(eventIds: readonly string[], db: Db, found: Map<string, StoredEvent>): Promise<void> {
    const missing = new Set<string>();
    for (const eventId of eventIds) {
      const cached = this.#cache.get(eventId);
      if (cached) found.set(eventId, cached.stored);
      // No event has such an id, and PostgreSQL refuses the question: ids also come from what events say.
      else if (!eventId.includes('\0')) missing.add(eventId);
    }
    if (missing.size === 0) return;
    const reading = db === this.database ? this.#cache.begin() : undefined;
    try {
      for (const [eventId, entry] of await load(db, [...missing], this.#withRemovals)) {
        found.set(eventId, entry.stored);
        reading?.keep(eventId, entry);
      }
    } finally {
      reading?.end();
    }
  }

  /**
   * The events that exist, in the order asked for, a part at a time, each in a turn of the event loop of its own. So is what lists their ids: it
   * goes on with each part.
   * @param eventIds `undefined` for what was looked at and is none of them: it counts
   */
  async *pages(eventIds: Iterable<string | undefined>): AsyncGenerator<StoredEvent[]> {
    for await (const some of inParts(eventIds)) yield this.inOrder(some);
  }

  /** The events that exist, in the order asked for. */
  async inOrder(eventIds: readonly string[]): Promise<StoredEvent[]> {
    const cached = eventIds.length <= idsPerTurn ? this.#allCached(eventIds) : undefined;
    if (cached !== undefined) return cached;
    const found = await this.many(eventIds);
    return eventIds.flatMap((eventId) => found.get(eventId) ?? []);
  }

  /** The events, where every one of them is cached: no map of them is needed then. */
  #allCached(eventIds: readonly string[]): StoredEvent[] | undefined {
    const events: StoredEvent[] = [];
    for (const eventId of eventIds) {
      const entry = this.#cache.get(eventId);
      if (entry === undefined) return undefined;
      events.push(entry.stored);
    }
    return events;
  }

  async one(eventId: string): Promise<StoredEvent | undefined> {
    return this.#cache.get(eventId)?.stored ?? (await this.many([eventId])).get(eventId);
  }

  /**
   * The events without redactions that do not count: of an event of another room, or of what their sender may not redact. Whoever
   * is told of such a redaction takes it for one. One query, where it is not known without.
   * @spec rooms/v3#handling-redactions
   */
  async withoutVoidRedactions(entries: readonly StoredEvent[]): Promise<readonly StoredEvent[]> {
    const doubtful: string[] = [];
    for (const { event } of entries) {
      if (event.type !== 'm.room.redaction' || event.redacts === undefined) continue;
      const target = this.peek(event.redacts)?.event;
      const isOwn =
        target?.roomId === event.roomId && sameServer(event.sender, target.sender) && isRedactable(target.type);
      if (!isOwn) doubtful.push(event.eventId);
    }
    if (doubtful.length === 0) return entries;
    const without = await selectVoidRedactions(this.database, doubtful);
    return without.size === 0 ? entries : entries.filter(({ event }) => !without.has(event.eventId));
  }

  /**
   * The protocol's part of {@link many}.
   * @param staged events that are about to be written, and can only be found there
   */
  async events(
    eventIds: Iterable<string>,
    staged?: ReadonlyMap<string, { readonly event: RoomEvent }>,
  ): Promise<Map<string, RoomEvent>> {
    const events = new Map<string, RoomEvent>();
    const missing: string[] = [];
    for (const eventId of eventIds) {
      const event = staged?.get(eventId)?.event ?? this.peek(eventId)?.event;
      if (event) events.set(eventId, event);
      else missing.push(eventId);
    }
    if (missing.length === 0) return events;
    for (const [eventId, stored] of await this.many(missing)) events.set(eventId, stored.event);
    return events;
  }

  /**
   * {@link events} as they were sent: what was decided by them does not change because they are redacted. What was redacted finally
   * stays so.
   */
  async asSent(
    eventIds: Iterable<string>,
    staged?: ReadonlyMap<string, { readonly event: RoomEvent }>,
  ): Promise<Map<string, RoomEvent>> {
    const events = new Map<string, RoomEvent>();
    const others: string[] = [];
    for (const eventId of eventIds) {
      const event = staged?.get(eventId)?.event;
      if (event) events.set(eventId, event);
      else others.push(eventId);
    }
    const redacted: string[] = [];
    for (const [eventId, { event, redactedBy }] of await this.many(others)) {
      events.set(eventId, event);
      if (redactedBy !== undefined) redacted.push(eventId);
    }
    if (redacted.length === 0) return events;
    for (const row of await selectEvents(this.database, redacted)) events.set(row.event_id, fromRow(row).event);
    return events;
  }

  /** Which of some events are stored, however they were judged; any number of them, without their texts. */
  async stored(eventIds: readonly string[]): Promise<Set<string>> {
    const stored = new Set<string>();
    for await (const some of inParts(eventIds))
      for (const eventId of await selectStoredIds(this.database, some)) stored.add(eventId);
    return stored;
  }

  /**
   * Those of some events that lie in a room and were not rejected, as pieces of its state; any number of them, without their texts.
   */
  async *stateEntries(roomId: string, eventIds: readonly string[]): AsyncGenerator<readonly StateEntry[]> {
    for await (const some of inParts(eventIds)) {
      const rows = await selectStateEntries(this.database, roomId, some);
      yield rows.map(({ event_id: eventId, type, state_key: stateKey, membership }) => ({
        ...{ eventId, type, stateKey: stateKey ?? undefined, membership: membership ?? undefined },
      }));
    }
  }

  /** An event from the cache, without a query. */
  peek(eventId: string): StoredEvent | undefined {
    return this.#cache.get(eventId)?.stored;
  }

  /** An event as it was sent, redacted or not; what was redacted finally stays so. For the eyes of moderators only. */
  async unredacted(eventId: string): Promise<RoomEvent | undefined> {
    const [row] = await selectEvents(this.database, [eventId]);
    return row && fromRow(row).event;
  }

  /** Told by the persister about an event that just became durable. */
  remember(stored: StoredEvent, sizeBytes: number): void {
    this.#cache.set(stored.event.eventId, { stored, sizeBytes: sizeBytes + 512 });
  }

  /** Told by the persister that a redaction of `eventId` became durable. */
  redact(eventId: string, redactionId: string): void {
    const cached = this.#cache.get(eventId);
    if (cached) this.#cache.set(eventId, { ...cached, stored: pruned(cached.stored, redactionId) });
    else this.#cache.delete(eventId);
    this.invalidations.send('get_event', [eventId]);
  }

  /** Told that what a user said in a room is redacted from now on. */
  forgetOf(roomId: string, sender: string): void {
    this.#dropOf(roomId, sender);
    this.invalidations.send('events_of_users', [roomId, sender]);
  }

  #dropOf(roomId: string, sender: string): void {
    this.#cache.deleteIf(({ stored: { event } }) => event.sender === sender && event.roomId === roomId);
  }

  forget(eventIds: Iterable<string>): void {
    const ids = [...eventIds];
    this.#cache.forget(ids);
    this.invalidations.send('get_event', ids);
  }
}

const whole = (row: EventRow): CachedEvent => ({ stored: fromRow(row), sizeBytes: row.json.length * 2 + 512 });

async function load(db: Db, eventIds: readonly string[], withRemovals: boolean): Promise<Map<string, CachedEvent>> {
  const loaded = new Map<string, CachedEvent>();
  const rows = await selectEvents(db, eventIds);
  if (rows.length === 0) return loaded;
  for (const row of rows) {
    loaded.set(row.event_id, whole(row));
  }
  for (const redaction of await selectRedactions(db, [...loaded.keys()])) {
    const entry = loaded.get(redaction.redacts)!;
    if (entry.stored.redactedBy !== undefined) continue;
    if (redaction.recheck && !sameServer(redaction.sender, entry.stored.event.sender)) continue;
    loaded.set(redaction.redacts, { ...entry, stored: pruned(entry.stored, redaction.event_id) });
  }
  if (withRemovals) await applyRemovals(db, loaded);
  return loaded;
}

/** Redacts what removed users have said, and how they called themselves; the room's state stays as they left it. */
async function applyRemovals(db: Db, loaded: Map<string, CachedEvent>): Promise<void> {
  const isTheirs = ({ event }: StoredEvent): boolean =>
    event.type !== 'm.room.redaction' && (event.stateKey === undefined || event.stateKey === event.sender);
  const entries = [...loaded.values()].filter(({ stored }) => stored.redactedBy === undefined && isTheirs(stored));
  if (entries.length === 0) return;
  const roomIds = new Set(entries.map(({ stored }) => stored.event.roomId));
  const senders = new Set(entries.map(({ stored }) => stored.event.sender));
  const found = await selectRemovalRedactions(db, [...roomIds], [...senders]);
  const byUser = new Map(found.map((redaction) => [`${redaction.roomId} ${redaction.userId}`, redaction]));
  for (const entry of entries) {
    const { event, streamOrdering } = entry.stored;
    const redaction = byUser.get(`${event.roomId} ${event.sender}`);
    if (!redaction || streamOrdering >= (redaction.endOrdering ?? Infinity)) continue;
    loaded.set(event.eventId, { ...entry, stored: pruned(entry.stored, redaction.eventId) });
  }
}
