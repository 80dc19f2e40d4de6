import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import {
  EventSerializer,
  EventStore,
  formatRoomToken,
  RoomStateReader,
  type StoredEvent,
  TimelineReader,
  VisibilityFilter,
  type VisibleEvent,
} from '@rookery/rooms';
import type { ContextRequest } from './search-request.js';

type Page = Awaited<ReturnType<TimelineReader['page']>>;

interface Around {
  readonly result: StoredEvent;
  readonly before: Page;
  readonly after: Page;
}

/** Results are looked around this many at a time. */
const parallel = 4;

/** What surrounds the results of a search. */
@Injectable()
export class ResultContexts {
  constructor(
    private readonly timeline: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
  ) {}

  /** By event id: what came before (the latest first) and after, and the senders' names at that time where asked for. */
  async of(
    requester: Requester,
    results: readonly VisibleEvent[],
    request: ContextRequest,
  ): Promise<Map<string, JsonObject>> {
    const around: Around[] = [];
    for (let at = 0; at < results.length; at += parallel) {
      const some = results.slice(at, at + parallel);
      around.push(...(await Promise.all(some.map(({ stored }) => this.#around(stored, request)))));
    }
    const surrounding = around.flatMap(({ before, after }) => [...before.events, ...after.events]);
    const unique = [...new Map(surrounding.map((stored) => [stored.event.eventId, stored])).values()];
    const visible = await this.visibility.visible(requester.userId, unique);
    const events = await this.serializer.serialize(requester, visible);
    const written = new Map(visible.map(({ stored }, index) => [stored.event.eventId, events[index]]));
    const pick = (list: readonly StoredEvent[]): object[] =>
      list.flatMap(({ event }) => written.get(event.eventId) ?? []);
    const shown = new Set([...written.keys(), ...around.map(({ result }) => result.event.eventId)]);
    const profiles = request.profiles ? await this.#profiles(around, shown) : undefined;
    return new Map(
      around.map(({ result, before, after }): [string, JsonObject] => [
        result.event.eventId,
        {
          events_before: pick(before.events),
          events_after: pick(after.events),
          start: formatRoomToken(before.end ?? this.timeline.placeOf(before.events.at(-1) ?? result, 'before')),
          end: formatRoomToken(after.end ?? this.timeline.placeOf(after.events.at(-1) ?? result, 'after')),
          ...(profiles && { profile_info: profiles.get(result.event.eventId) ?? {} }),
        },
      ]),
    );
  }

  async #around(result: StoredEvent, request: ContextRequest): Promise<Around> {
    const { roomId } = result.event;
    const page = (side: 'before' | 'after', limit: number): Promise<Page> => {
      const from = this.timeline.placeOf(result, side);
      return limit === 0
        ? Promise.resolve({ events: [], end: from })
        : this.timeline.page(roomId, from, { direction: side === 'before' ? 'b' : 'f', limit });
    };
    const [before, after] = await Promise.all([page('before', request.before), page('after', request.after)]);
    return { result, before, after };
  }

  /** @param shown the events that the reader may see: of who sent others nothing is told */
  async #profiles(around: readonly Around[], shown: ReadonlySet<string>): Promise<Map<string, JsonObject>> {
    const senders = new Set(
      around.flatMap(({ result, before, after }) =>
        [result, ...before.events, ...after.events].flatMap(({ event }) =>
          shown.has(event.eventId) ? event.sender : [],
        ),
      ),
    );
    const states = await this.state.idsAfter(
      around.map(({ result }) => result.event.eventId),
      { types: [...senders].map((sender) => ['m.room.member', sender] as const) },
    );
    const members = await this.events.events([...states.values()].flatMap((state) => [...state.values()]));
    return new Map(
      [...states].map(([eventId, state]): [string, JsonObject] => [
        eventId,
        Object.fromEntries(
          [...state.values()].flatMap((id) => {
            const member = members.get(id);
            if (member?.stateKey === undefined) return [];
            const { displayname, avatar_url: avatarUrl } = member.content;
            return [
              [
                member.stateKey,
                {
                  ...(typeof displayname === 'string' && { displayname }),
                  ...(typeof avatarUrl === 'string' && { avatar_url: avatarUrl }),
                },
              ],
            ];
          }),
        ),
      ]),
    );
  }
}
