import { Injectable } from '@nestjs/common';
import { clientEventView, type RoomEvent, stickyDurationOf, stickyKey } from '@rookery/events';
import type { ClientEvent, JsonObject, UnsignedData } from '@rookery/matrix-types';
import { WrittenList } from '@rookery/http';
import { callbackContext, ModuleDispatcher, toModuleEvent } from '@rookery/module-host';
import { Clock, Config, LogContext, ownTurn } from '@rookery/platform';
import { EventStore } from '../store/event-store.js';
import { isServable, type StoredEvent } from '../model/stored-event.js';
import { type Aggregation, Aggregations } from './aggregations.js';
import type { VisibleEvent } from './visibility-filter.js';
import { deviceKeyOf, type Reader } from '../model/requesters.js';

/** How events are written. */
export interface SerializeOptions {
  /** The room is told elsewhere, as in `/sync`. */
  readonly withoutRoomId?: boolean;
  /** Leave out what other events add. */
  readonly withoutAggregations?: boolean;
  /** Leave out what modules add, so that none of them can hold up whoever reads. */
  readonly withoutModules?: boolean;
}

/** How state is written, and which of it. */
export interface StateOptions extends SerializeOptions {
  readonly isWanted?: (stored: StoredEvent) => boolean;
}

/** An event, by itself or within another, and how it is written. */
interface WrittenEvent {
  readonly event: RoomEvent;
  readonly view: ClientEvent;
}

/** Events that are written before others get a turn. */
const eventsPerTurn = 500;

/** Begins the transaction ids of events that were left to be sent later (MSC4140); the id of the delay follows. */
export const delayedTxnPrefix = 'org.matrix.msc4140.delay:';

/** Begins the transaction ids of redactions as they are stored; the client's own follows. */
export const redactionTxnPrefix = 'io.rookery.redact:';

/** The id under which an event was left to be sent later, by the transaction that sent it (MSC4140). */
const delayIdOf = (txnId: string): string | undefined =>
  txnId.startsWith(delayedTxnPrefix) ? txnId.slice(delayedTxnPrefix.length) : undefined;

/** Writes events as clients see them, with everything that is added for one reader. */
@Injectable()
export class EventSerializer {
  readonly #withSticky: boolean;

  /** Whether somebody was there to send it: state is also set by what runs unattended, as are events that were left to be sent. */
  static isSentByHand(stored: StoredEvent): boolean {
    const { transaction, event } = stored;
    if (transaction === undefined || event.stateKey !== undefined || !isServable(stored)) return false;
    return delayIdOf(transaction.txnId) === undefined;
  }

  /** Has an event tell its sender by what they know it: their own transaction id, or that under which it was left to be sent (MSC4140). */
  static nameTransaction(unsigned: UnsignedData, txnId: string): void {
    const delayId = delayIdOf(txnId);
    if (delayId !== undefined) unsigned['org.matrix.msc4140.delay_id'] = delayId;
    else unsigned.transaction_id = withoutPrefix(txnId);
  }

  constructor(
    private readonly events: EventStore,
    private readonly aggregations: Aggregations,
    private readonly modules: ModuleDispatcher,
    private readonly clock: Clock,
    config: Config,
  ) {
    this.#withSticky = config.get('experimental_features.msc4354_enabled');
  }

  /**
   * The client format of events, in the order given; a bounded number of queries for all of them, of many in parts.
   * @param visible what {@link VisibilityFilter} let through
   */
  async serialize(
    reader: Reader,
    visible: readonly VisibleEvent[],
    options: SerializeOptions = {},
  ): Promise<ClientEvent[]> {
    if (visible.length <= eventsPerTurn) return this.#serialize(reader, visible, options);
    const written: ClientEvent[] = [];
    for (let start = 0; start < visible.length; start += eventsPerTurn) {
      if (start > 0) await ownTurn();
      for (const event of await this.#serialize(reader, visible.slice(start, start + eventsPerTurn), options))
        written.push(event);
    }
    return written;
  }

  async #serialize(
    reader: Reader,
    visible: readonly VisibleEvent[],
    options: SerializeOptions,
  ): Promise<ClientEvent[]> {
    if (visible.length === 0) return [];
    const aggregations = options.withoutAggregations
      ? new Map<string, Aggregation>()
      : await this.aggregations.of(
          reader.userId,
          visible.map(({ stored }) => stored),
        );
    const extra = new Set<string>();
    const addExtra = ({ replacesState, redactedBy }: StoredEvent): void => {
      if (replacesState !== undefined) extra.add(replacesState);
      if (redactedBy !== undefined) extra.add(redactedBy);
    };
    for (const { stored } of visible) addExtra(stored);
    for (const { thread } of aggregations.values()) if (thread) addExtra(thread.latest);
    const others = await this.events.many(extra);
    const nowMs = this.clock.nowMs();
    const asked: WrittenEvent[] | undefined =
      !options.withoutModules && this.modules.has('addFieldToUnsigned') ? [] : undefined;
    const write = (stored: StoredEvent, membership?: string): ClientEvent => {
      const unsigned = this.#unsigned(reader, stored, membership, others, nowMs);
      const redaction = stored.redactedBy === undefined ? undefined : others.get(stored.redactedBy)?.event;
      if (redaction) {
        unsigned.redacted_because = clientEventView(redaction, { age: nowMs - redaction.originServerTs });
        asked?.push({ event: redaction, view: unsigned.redacted_because });
      }
      const view = clientEventView(stored.event, unsigned, options.withoutRoomId);
      asked?.push({ event: stored.event, view });
      return this.#withSticky ? withStickiness(view, stored.event, nowMs) : view;
    };
    const written = visible.map(({ stored, membership }) => write(stored, membership));
    for (const [index, event] of aggregations.size > 0 ? written.entries() : []) {
      const relations = relationsOf(aggregations.get(visible[index]!.stored.event.eventId), aggregations, write);
      if (relations) event.unsigned!['m.relations'] = relations;
    }
    if (asked) await this.#askModules(reader, asked);
    return written;
  }

  /** State events for which nothing was asked but themselves: `/state`, `state` of a sync. */
  serializeState(
    reader: Reader,
    state: readonly StoredEvent[],
    options: SerializeOptions = {},
  ): Promise<ClientEvent[]> {
    return this.serialize(
      reader,
      state.map((stored) => ({ stored, membership: undefined })),
      { withoutAggregations: true, ...options },
    );
  }

  /**
   * State by the ids of its events, however much of it: read and written a part at a time. More than one part is kept as text only, since
   * whoever reads it hands it on.
   * @param isWanted leaves out others
   */
  async writeState(
    reader: Reader,
    eventIds: readonly string[],
    { isWanted = () => true, ...options }: StateOptions = {},
  ): Promise<readonly ClientEvent[] | WrittenList> {
    if (eventIds.length <= eventsPerTurn)
      return this.serializeState(reader, (await this.events.inOrder(eventIds)).filter(isWanted), options);
    const list = new WrittenList();
    for await (const page of this.events.pages(eventIds))
      list.add(await this.serializeState(reader, page.filter(isWanted), options));
    return list;
  }

  #unsigned(
    reader: Reader,
    stored: StoredEvent,
    membership: string | undefined,
    others: ReadonlyMap<string, StoredEvent>,
    nowMs: number,
  ): UnsignedData {
    const { event, transaction } = stored;
    const unsigned: UnsignedData = { age: nowMs - event.originServerTs };
    if (stored.softFailed) unsigned['io.element.synapse.soft_failed'] = true;
    if (stored.isSpammy) unsigned['io.element.synapse.policy_server_spammy'] = true;
    if (membership !== undefined) unsigned['membership'] = membership as UnsignedData['membership'];
    if (transaction && transaction.userId === reader.userId && transaction.deviceId === deviceKeyOf(reader))
      EventSerializer.nameTransaction(unsigned, transaction.txnId);
    const replaced = stored.replacesState === undefined ? undefined : others.get(stored.replacesState);
    if (replaced) {
      unsigned['replaces_state'] = replaced.event.eventId;
      unsigned.prev_content = replaced.event.content;
      unsigned['prev_sender'] = replaced.event.sender;
    }
    return unsigned;
  }

  async #askModules(reader: Reader, written: readonly WrittenEvent[]): Promise<void> {
    const requestId = LogContext.current()?.requestId;
    const source = requestId === undefined ? 'server' : 'client';
    const context = callbackContext(undefined, { source, requestId, userId: reader.userId });
    for (const { event, view } of written) {
      try {
        const fields = await this.modules.addFieldToUnsigned(context, toModuleEvent(event));
        view.unsigned = { ...fields, ...view.unsigned };
      } catch {
        // Somebody whose room holds an event that a module fails with could never sync again. The log names the module.
      }
    }
  }
}

const withoutPrefix = (txnId: string): string =>
  txnId.startsWith(redactionTxnPrefix) ? txnId.slice(redactionTxnPrefix.length) : txnId;

/** Adds that an event is sticky, and for how long yet (MSC4354). */
function withStickiness(view: ClientEvent, event: RoomEvent, nowMs: number): ClientEvent {
  const durationMs = stickyDurationOf(event);
  if (durationMs === undefined) return view;
  const leftMs = Math.min(nowMs, event.originServerTs) + durationMs - nowMs;
  if (leftMs > 0) view.unsigned = { ...view.unsigned, msc4354_sticky_duration_ttl_ms: leftMs };
  return Object.assign(view, { [stickyKey]: event.pdu[stickyKey] });
}

function relationsOf(
  aggregation: Aggregation | undefined,
  all: ReadonlyMap<string, Aggregation>,
  write: (stored: StoredEvent) => ClientEvent,
): JsonObject | undefined {
  if (!aggregation) return undefined;
  const relations: JsonObject = {};
  if (aggregation.edit) relations['m.replace'] = write(aggregation.edit);
  if (aggregation.references) {
    relations['m.reference'] = { chunk: aggregation.references.map((eventId) => ({ event_id: eventId })) };
  }
  if (aggregation.thread) {
    const { latest, count, participated } = aggregation.thread;
    const latestEvent = write(latest);
    const edit = all.get(latest.event.eventId)?.edit;
    if (edit) latestEvent.unsigned!['m.relations'] = { 'm.replace': write(edit) };
    relations['m.thread'] = { latest_event: latestEvent, count, current_user_participated: participated };
  }
  return relations;
}
