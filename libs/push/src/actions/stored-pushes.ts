import type { EventPush } from './event-push.js';
import type { StoredPushRow } from './push-actions.query.js';

/** What of an event's meaning is counted. */
export interface CountedPush extends Pick<EventPush, 'sender' | 'threadId' | 'except' | 'exceptGroups'> {
  readonly everyone: { readonly highlight: boolean } | undefined;
  readonly own: ReadonlyMap<string, { readonly highlight: boolean }>;
}

/** What events meant that another process has stored, from their rows, in order; those that notify nobody are left out. */
export function storedPushes(rows: readonly StoredPushRow[]): CountedPush[] {
  const pushes: CountedPush[] = [];
  for (const each of Map.groupBy(rows, (row) => row.stream_ordering).values()) {
    const [event] = each as [StoredPushRow];
    const own = new Map<string, { readonly highlight: boolean }>();
    for (const { user_id: userId, highlight } of each)
      if (userId !== null) own.set(userId, { highlight: highlight === 1 });
    const threadId = event.push_thread ?? event.thread_id;
    if (threadId === null) continue;
    const everyone = event.push_thread === null ? undefined : { highlight: event.push_highlight === 1 };
    // Groups and users, and members who may not see it: these are told of among the users, where that makes a difference.
    const excepted = event.push_except === null ? [] : (JSON.parse(event.push_except) as string[]);
    pushes.push({
      ...{ sender: event.sender, threadId, everyone, own },
      except: excepted.filter((one) => one.startsWith('@')),
      exceptGroups: excepted.filter((one) => !/^[@-]/.test(one)),
    });
  }
  return pushes;
}
