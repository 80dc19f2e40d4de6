import { Injectable } from '@nestjs/common';
import { allSoon, type Soon, soon } from '@rookery/platform';
import { relationOf, type RoomEvent } from '@rookery/events';
import { isJsonObject } from '@rookery/matrix-types';
import type { RelatedEvent } from '@rookery/push-rules';
import { EventStore, isServable } from '@rookery/rooms';
import { PushRulesService } from '../rules/push-rules.service.js';
import { threadOf } from '../threads/thread-of.js';
import { ThreadSubscriptions } from '../threads/thread-subscriptions.service.js';
import { pushEventOf } from './event-push.js';

/** What an event has to do with others, as far as push rules ask. */
export interface EventTies {
  /** Id of the thread's root, or `main`. */
  readonly threadId: string;
  /** Who is subscribed to the thread (MSC4306); absent where the event is in none, or threads are no feature. */
  readonly subscribers: ReadonlySet<string> | undefined;
  /** Events that this one points to, by the type of the relation (MSC3664); absent where that is no feature. */
  readonly related: ReadonlyMap<string, RelatedEvent> | undefined;
}

/** Looks up what an event has to do with others; at once for an event that points to none. */
@Injectable()
export class EventTiesReader {
  constructor(
    private readonly rules: PushRulesService,
    private readonly threads: ThreadSubscriptions,
    private readonly events: EventStore,
  ) {}

  of(event: RoomEvent): Soon<EventTies> {
    return soon(threadOf(this.events, event), (threadId) => {
      const inThread = this.threads.isEnabled && threadId !== 'main';
      const lookUps = [
        inThread ? this.threads.subscribers(event.roomId, threadId) : undefined,
        this.rules.features.replies === true ? this.#related(event) : undefined,
      ] as const;
      return soon(allSoon(lookUps), ([subscribers, related]) => ({ threadId, subscribers, related }));
    });
  }

  async #related(event: RoomEvent): Promise<ReadonlyMap<string, RelatedEvent>> {
    const related = new Map<string, RelatedEvent>();
    for (const [type, { eventId, isFallback }] of relationsIn(event)) {
      const target = await this.events.one(eventId);
      if (target?.event.roomId === event.roomId && isServable(target))
        related.set(type, { event: pushEventOf(target.event), isFallback });
    }
    return related;
  }
}

/** At most two relations: the one with a type, and the event that this one answers. */
function relationsIn({ content }: RoomEvent): Map<string, { readonly eventId: string; readonly isFallback: boolean }> {
  const found = new Map<string, { readonly eventId: string; readonly isFallback: boolean }>();
  const relation = relationOf(content);
  if (relation) found.set(relation.type, { eventId: relation.eventId, isFallback: false });
  const relatesTo = content['m.relates_to'];
  if (!isJsonObject(relatesTo) || !isJsonObject(relatesTo['m.in_reply_to'])) return found;
  const { event_id: eventId } = relatesTo['m.in_reply_to'];
  if (typeof eventId === 'string')
    found.set('m.in_reply_to', { eventId, isFallback: relatesTo['is_falling_back'] === true });
  return found;
}
