import type { Person, WireEvent } from './person.js';

/** What a reader holds of a room, in a form that two servers' answers can be compared in. */
export interface Holding {
  /** `type|state_key|event_id`, sorted. */
  readonly state: readonly string[];
  /** Ids, sorted. */
  readonly events: readonly string[];
}

export const stateLines = (events: readonly WireEvent[]): string[] =>
  events.map((event) => `${event.type}|${event.state_key}|${event.event_id}`).sort();

async function holding(reader: Person, roomId: string): Promise<Holding> {
  const events = await reader.history(roomId);
  return {
    state: stateLines(await reader.state(roomId)),
    events: [...new Set(events.map((event) => event.event_id))].sort(),
  };
}

const agreementLimitMs = 120_000;

/**
 * Waits until both servers hold the same current state and the same events of a room; each reader sees its whole history.
 * @throws Error that names what only one of them holds
 */
export async function agree(one: Person, other: Person, roomId: string): Promise<Holding> {
  const end = performance.now() + agreementLimitMs;
  for (;;) {
    const [here, there] = [await holding(one, roomId), await holding(other, roomId)];
    const differences = [
      ...difference(`state only at ${one.home.kind}`, here.state, there.state),
      ...difference(`state only at ${other.home.kind}`, there.state, here.state),
      ...difference(`event only at ${one.home.kind}`, here.events, there.events),
      ...difference(`event only at ${other.home.kind}`, there.events, here.events),
    ];
    if (differences.length === 0) return here;
    if (performance.now() > end) throw new Error(`${roomId}: ${differences.slice(0, 20).join('\n')}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

function difference(what: string, mine: readonly string[], theirs: readonly string[]): string[] {
  const known = new Set(theirs);
  return mine.filter((each) => !known.has(each)).map((each) => `${what}: ${each}`);
}
