import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventSerializer, RoomReadingService, type VisibleEvent } from '@rookery/rooms';
import { ResultContexts } from './result-contexts.js';
import { formatPlace, type SearchPlace, type SearchRequest } from './search-request.js';

/** What a search found. */
export interface FoundMessage {
  readonly visible: VisibleEvent;
  /** Absent in the order of time: nobody asked for it. */
  readonly rank: number | undefined;
}

/** A page of it, and where the next one begins. */
export interface SearchPage {
  readonly found: readonly FoundMessage[];
  readonly next: SearchPlace | undefined;
}

/** Results of searches as clients see them, with what was asked for around them. */
@Injectable()
export class SearchResults {
  constructor(
    private readonly serializer: EventSerializer,
    private readonly rooms: RoomReadingService,
    private readonly contexts: ResultContexts,
  ) {}

  /** The fields of an answer: the results, where they go on, their groups and the state of their rooms. */
  async write(requester: Requester, request: SearchRequest, { found, next }: SearchPage): Promise<JsonObject> {
    const visible = found.map((one) => one.visible);
    const [written, contexts] = await Promise.all([
      this.serializer.serialize(requester, visible),
      request.context ? this.contexts.of(requester, visible, request.context) : undefined,
    ]);
    const results = found.map(({ visible: { stored }, rank }, index): JsonObject => {
      const context = contexts?.get(stored.event.eventId);
      return { ...(rank !== undefined && { rank }), result: { ...written[index] }, ...(context && { context }) };
    });
    const answer: JsonObject = { results };
    if (next) answer['next_batch'] = formatPlace(next);
    if (request.groupBy.length > 0) answer['groups'] = groupsOf(request, found, next);
    if (request.includeState) answer['state'] = await this.#states(requester, visible);
    return answer;
  }

  async #states(requester: Requester, visible: readonly VisibleEvent[]): Promise<JsonObject> {
    const states: JsonObject = {};
    for (const roomId of new Set(visible.map(({ stored }) => stored.event.roomId))) {
      try {
        states[roomId] = await this.rooms.allState(requester, roomId);
      } catch (error) {
        // Who may see some of a room's messages need not be one who may read its state.
        if (!MatrixError.is(error)) throw error;
      }
    }
    return states;
  }
}

function groupsOf(request: SearchRequest, found: readonly FoundMessage[], next: SearchPlace | undefined): JsonObject {
  const groups: JsonObject = {};
  for (const key of request.groupBy) {
    const byValue = Map.groupBy(found, ({ visible: { stored } }) =>
      key === 'room_id' ? stored.event.roomId : stored.event.sender,
    );
    groups[key] = Object.fromEntries(
      [...byValue].map(([value, members], index) => [
        value,
        {
          order: index + 1,
          results: members.map(({ visible }) => visible.stored.event.eventId),
          ...(next && { next_batch: formatPlace({ ...next, group: { key, value } }) }),
        },
      ]),
    );
  }
  return groups;
}
