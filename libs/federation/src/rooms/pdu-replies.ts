import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { HttpReply } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Events that are in memory at a time, and what is written of them in one turn of the event loop; characters. */
const chunkSize = 50;
const pieceChars = 262_144;

/** Lists of ids of the events to be sent, by key. */
export type EventLists = Readonly<Record<string, Iterable<string>>>;

/** Writes answers that hold events, however many: piece by piece, as the other side takes them. */
@Injectable()
export class PduReplies {
  constructor(
    private readonly events: EventStore,
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /**
   * An object with lists of events; what was rejected is left out.
   * @param more further keys of the object
   * @param asPair the first version of an endpoint wants a list of the status and the object
   */
  lists(lists: EventLists, more: JsonObject = {}, asPair = false): HttpReply {
    return new HttpReply(
      200,
      { 'content-type': 'application/json' },
      Readable.from(this.#write(lists, more, asPair), { objectMode: false }),
    );
  }

  /** Events in the form of a transaction. */
  transaction(events: readonly RoomEvent[]): JsonObject {
    return {
      origin: this.config.serverName,
      origin_server_ts: this.clock.nowMs(),
      pdus: events.map((event) => wirePdu(event)),
    };
  }

  async *#write(lists: EventLists, more: JsonObject, asPair: boolean): AsyncGenerator<string> {
    // Closed by hand, for there are lists to come.
    const head = JSON.stringify(more).slice(0, -1);
    yield (asPair ? '[200,' : '') + head;
    let isFirst = head === '{';
    for (const [key, ids] of Object.entries(lists)) {
      yield `${isFirst ? '' : ','}${JSON.stringify(key)}:[`;
      isFirst = false;
      yield* this.#writeList([...ids]);
      yield ']';
    }
    yield asPair ? '}]' : '}';
  }

  async *#writeList(ids: readonly string[]): AsyncGenerator<string> {
    let separator = '';
    for (let start = 0; start < ids.length; start += chunkSize) {
      let text = '';
      for (const { event, rejectedReason } of await this.events.inOrder(ids.slice(start, start + chunkSize))) {
        if (rejectedReason !== undefined) continue;
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
