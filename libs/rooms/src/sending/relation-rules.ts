import type { Db } from '@rookery/database';
import { relationOf } from '@rookery/events';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { EventStore } from '../store/event-store.js';
import { hasAnnotated } from './relations.query.js';

/** What somebody is about to send. */
interface Draft {
  readonly roomId: string;
  readonly type: string;
  readonly content: Readonly<JsonObject>;
}

/**
 * What this server does not let its own users relate although the auth rules would: the same reaction twice, and threads on
 * events that themselves are part of something. Where the event related to is not known here, nothing is said.
 * @throws MatrixError 400 `M_DUPLICATE_ANNOTATION`, 400 `M_UNKNOWN`
 * @spec client-server-api#avoiding-duplicate-annotations
 * @spec client-server-api#threading
 */
export async function checkRelation(db: Db, events: EventStore, sender: string, draft: Draft): Promise<void> {
  const relation = relationOf(draft.content);
  if (relation?.type === 'm.annotation' && relation.key !== undefined) {
    const { eventId, key } = relation;
    if (await hasAnnotated(db, { sender, type: draft.type, roomId: draft.roomId }, { eventId, key }))
      throw MatrixError.duplicateAnnotation();
  } else if (relation?.type === 'm.thread') {
    const root = await events.one(relation.eventId);
    if (root?.event.roomId === draft.roomId && relationOf(root.event.content) !== undefined)
      throw MatrixError.badRequest('A thread cannot begin at an event that relates to another');
  }
}
