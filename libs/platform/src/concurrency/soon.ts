/**
 * A value that is there, or that has to be waited for. For the way of an event only, where most is in memory: a wait for what is
 * there would cost each event a turn. Everywhere else a promise does.
 */
export type Soon<T> = T | Promise<T>;

/** Goes on with a value: at once when it is there. */
export function soon<T, Result>(value: Soon<T>, use: (value: T) => Soon<Result>): Soon<Result> {
  return isAwaited(value) ? value.then(use) : use(value);
}

/** Whether a value has to be waited for. */
export function isAwaited<T>(value: Soon<T>): value is Promise<T> {
  return value instanceof Promise;
}

type Settled<Values extends readonly unknown[]> = { -readonly [Index in keyof Values]: Awaited<Values[Index]> };

/** All of some values: at once when none has to be waited for. */
export function allSoon<const Values extends readonly unknown[]>(values: Values): Soon<Settled<Values>> {
  return values.some((value) => isAwaited(value))
    ? Promise.all(values as readonly unknown[]).then((settled) => settled as Settled<Values>)
    : (values as unknown as Settled<Values>);
}
