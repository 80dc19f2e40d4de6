import type { Waiting } from './waiting.js';

/**
 * One step on the way of an event. It writes down on the way what it finds and answers nothing, so that the next one goes on;
 * or it answers with the end, or that somebody who was asked takes longer than the room's turn.
 */
export type Stage<Way, End, Answer> = (way: Way) => Promise<End | Waiting<Answer> | undefined>;

/** Leads an event through stages, up to the first that ends its way. The last one must. */
export async function goThrough<Way, End, Answer>(
  stages: readonly Stage<Way, End, Answer>[],
  way: Way,
): Promise<End | Waiting<Answer>> {
  for (const stage of stages) {
    const end = await stage(way);
    if (end !== undefined) return end;
  }
  throw new Error('The way of an event has no end');
}
