import { isCitable } from '../auth/auth-types.js';
import type { ResolutionEvents } from './resolution-events.js';

/**
 * The events on the paths along `auth_events` from one conflicted event to another, both ends included.
 * @param conflicted the conflicted state set, loaded
 * @spec rooms/v12#definitions
 */
export async function conflictedSubgraph(
  conflicted: ReadonlySet<string>,
  store: ResolutionEvents,
): Promise<Set<string>> {
  const subgraph = new Set<string>();
  const ends = [...conflicted].filter((id) => isCitable(store.get(id)?.type ?? ''));
  if (ends.length === 0 || conflicted.size < 2) return subgraph;

  await store.loadLinks(conflicted);
  // Paths end at the lowest of these ends: where generations are known, nothing below needs a look.
  const floor = Math.min(...ends.map((id) => store.links(id)?.generation ?? -1));
  const citedBy = new Map<string, string[]>();
  const seen = new Set(conflicted);
  for (let level: string[] = [...conflicted]; level.length > 0;) {
    const next: string[] = [];
    for (const id of level) {
      await store.pause();
      const links = store.links(id);
      if (links === undefined || (links.generation ?? Infinity) <= floor) continue;
      for (const authId of links.authEventIds) {
        const citing = citedBy.get(authId);
        if (citing === undefined) citedBy.set(authId, [id]);
        else citing.push(id);
        if (seen.has(authId)) continue;
        seen.add(authId);
        next.push(authId);
      }
    }
    await store.loadLinks(next);
    level = next;
  }

  // Everything that was walked lies below a conflicted event; what also lies above one is on a path.
  const stack = ends.filter((id) => citedBy.has(id));
  for (const id of stack) subgraph.add(id);
  for (let id = stack.pop(); id !== undefined; id = stack.pop()) {
    for (const citing of citedBy.get(id) ?? []) {
      if (subgraph.has(citing)) continue;
      subgraph.add(citing);
      stack.push(citing);
    }
  }
  return subgraph;
}
