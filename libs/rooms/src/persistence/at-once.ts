/** What {@link atOnce} gives for an answer that takes its time. */
export const later = Symbol('later');

/** Settles when the event loop of this process has gone round once. */
let round: Promise<typeof later> | undefined;

/** An answer that needs nothing but computing; `later` for one that waits for anything: a timer, a disk, another server. */
export function atOnce<T>(answer: Promise<T>): Promise<T | typeof later> {
  round ??= new Promise((resolve) => {
    setImmediate(() => {
      round = undefined;
      resolve(later);
    });
  });
  const turn = round;
  return new Promise((resolve, reject) => {
    answer.then(resolve, reject);
    void turn.then(resolve);
  });
}
