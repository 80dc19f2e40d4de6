import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { HttpReply } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { FederatedEventDeliveryMethod } from '@rookery/module-api';
import { Clock, Config } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { EventDeliveries } from './event-deliveries.js';

/** Events that are in memory at a time, and what is written of them in one turn of the event loop; characters. */
const chunkSize = 50;
const pieceChars = 262_144;
/** What an id takes in memory with its place in a list or set, bytes: about. */
const idBytes = 96;

/** Lists of ids of the events to be sent, by key. */
export type EventLists = Readonly<Record<string, readonly string[] | ReadonlySet<string>>>;

/** To whom an answer goes, and which it is. */
export interface Recipient {
  readonly origin: string;
  readonly method: FederatedEventDeliveryMethod;
}

/** Writes answers that hold events, however many: piece by piece, as the other side takes them. */
@Injectable()
export class PduReplies {
  constructor(
    private readonly events: EventStore,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly deliveries: EventDeliveries,
  ) {}

  /**
   * An object with lists of events; what was rejected is left out. Modules hear of them as they are read.
   * @param more further keys of the object
   * @param asPair the first version of an endpoint wants a list of the status and the object
   */
  lists(to: Recipient, lists: EventLists, more: JsonObject = {}, asPair = false): HttpReply {
    const count = Object.values(lists).reduce((sum, ids) => sum + ('size' in ids ? ids.size : ids.length), 0);
    return new HttpReply(
      200,
      { 'content-type': 'application/json' },
      Readable.from(this.#write(to, lists, more, asPair), { objectMode: false }),
      count * idBytes,
    );
  }

  /** Events as they are written into an answer. */
  wire({ origin, method }: Recipient, events: readonly RoomEvent[]): JsonObject[] {
    this.deliveries.tell(origin, method, events);
    return events.map((event) => wirePdu(event));
  }

  /** Events in the form of a transaction. */
  transaction(to: Recipient, events: readonly RoomEvent[]): JsonObject {
    return {
      origin: this.config.serverName,
      origin_server_ts: this.clock.nowMs(),
      pdus: this.wire(to, events),
    };
  }

  async *#write(to: Recipient, lists: EventLists, more: JsonObject, asPair: boolean): AsyncGenerator<string> {
    // Closed by hand, for there are lists to come.
    const head = JSON.stringify(more).slice(0, -1);
    yield (asPair ? '[200,' : '') + head;
    let isFirst = head === '{';
    for (const [key, ids] of Object.entries(lists)) {
      yield `${isFirst ? '' : ','}${JSON.stringify(key)}:[`;
      isFirst = false;
      yield* this.#writeList(to, [...ids]);
      yield ']';
    }
    yield asPair ? '}]' : '}';
  }

  async *#writeList({ origin, method }: Recipient, ids: readonly string[]): AsyncGenerator<string> {
    let separator = '';
    for (let start = 0; start < ids.length; start += chunkSize) {
      let text = '';
      const chunk = (await this.events.inOrder(ids.slice(start, start + chunkSize))).flatMap(
        ({ event, rejectedReason }) => (rejectedReason === undefined ? [event] : []),
      );
      this.deliveries.tell(origin, method, chunk);
      for (const event of chunk) {
        text += separator + JSON.stringify(wirePdu(event));
        separator = ',';
        if (text.length < pieceChars) continue;
        yield text;
        text = '';
        await nextTurn();
      }
      if (text !== '') yield text;
    }
  }
}

/** An event as it goes to other servers: without what only this one knows. */
export function wirePdu({ pdu }: RoomEvent): JsonObject {
  const { unsigned: _, ...rest } = pdu;
  return rest;
}
