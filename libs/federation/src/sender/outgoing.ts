import type { PresenceState, Receipt } from '@rookery/ephemeral';
import type { TypingNews } from './ephemeral-outbox.js';
import type { StoreName } from './outgoing-edu.js';
import type { OutgoingEvent } from './sender.query.js';

/** Something that is to go to servers, or that is known of them. Goes from process to process as JSON. */
export type Outgoing = { readonly servers: readonly string[] } &
  /** Events that the database knows to be for them, in stream order. */
  (
    | { readonly kind: 'events'; readonly events: readonly OutgoingEvent[] }
    | { readonly kind: 'typing'; readonly news: TypingNews }
    | { readonly kind: 'receipts'; readonly receipts: readonly Receipt[] }
    | { readonly kind: 'presence'; readonly states: readonly PresenceState[] }
    /** Something lies in a store. */
    | { readonly kind: 'stored'; readonly store: StoreName }
    /** The same, but it waits for something else to go along with. */
    | { readonly kind: 'enclosed'; readonly store: StoreName }
    /** They showed life. */
    | { readonly kind: 'life' }
    /** Events were redacted or deleted; of no server. */
    | { readonly kind: 'forgotten'; readonly eventIds: readonly string[] }
  );

/** Events by server as those servers have the same of. */
export function sameEvents(byServer: ReadonlyMap<string, readonly OutgoingEvent[]>): Outgoing[] {
  const groups = new Map<string, { readonly servers: string[]; readonly events: readonly OutgoingEvent[] }>();
  for (const [server, events] of byServer) {
    const key = events.map(({ streamOrdering }) => streamOrdering).join();
    const group = groups.get(key);
    if (group) group.servers.push(server);
    else groups.set(key, { servers: [server], events });
  }
  return [...groups.values()].map((group) => ({ kind: 'events', ...group }));
}
