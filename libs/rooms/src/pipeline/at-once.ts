/** What {@link atOnce} gives for an answer that takes its time. */
export const later = Symbol('later');

/** Told once the event loop of this process has gone round. */
let waiting: ((value: typeof later) => void)[] = [];

function goneRound(): void {
  const all = waiting;
  waiting = [];
  for (const tell of all) tell(later);
}

/** An answer that needs nothing but computing; `later` for one that waits for anything: a timer, a disk, another server. */
export function atOnce<T>(answer: Promise<T>): Promise<T | typeof later> {
  if (waiting.length === 0) setImmediate(goneRound);
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    answer.then(resolve, reject);
  });
}
