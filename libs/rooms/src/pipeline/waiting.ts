/**
 * Somebody who was asked about an event, a module or another server, takes longer than a turn of the event loop. A room's turn
 * does not wait for that: whoever gets this stages nothing, and goes on outside once the answer is there.
 */
export class Waiting<T> {
  constructor(readonly answer: Promise<T>) {}

  /** The same wait, for what is made of the answer. */
  map<Result>(use: (answer: T) => Result | Promise<Result>): Waiting<Result> {
    return new Waiting(this.answer.then(use));
  }
}

/** Told once the event loop of this process has gone round. */
let unanswered: (() => void)[] = [];

function goneRound(): void {
  const all = unanswered;
  unanswered = [];
  for (const tell of all) tell();
}

/** An answer that needs nothing but computing; else who waits for anything: a timer, a disk, another server. */
export function withinTurn<T>(answer: Promise<T>): Promise<T | Waiting<T>> {
  if (unanswered.length === 0) setImmediate(goneRound);
  return new Promise((resolve, reject) => {
    unanswered.push(() => resolve(new Waiting(answer)));
    answer.then(resolve, reject);
  });
}
