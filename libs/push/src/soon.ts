/** A value that is there, or that has to be waited for. */
export type Soon<T> = T | Promise<T>;

/** Goes on with a value: at once when it is there. */
export function soon<T, Result>(value: Soon<T>, use: (value: T) => Soon<Result>): Soon<Result> {
  return value instanceof Promise ? value.then(use) : use(value);
}

type Settled<Values extends readonly unknown[]> = { -readonly [Index in keyof Values]: Awaited<Values[Index]> };

/** All of some values: at once when none has to be waited for. */
export function allSoon<const Values extends readonly unknown[]>(values: Values): Soon<Settled<Values>> {
  return values.some((value) => value instanceof Promise)
    ? Promise.all(values as readonly unknown[]).then((settled) => settled as Settled<Values>)
    : (values as unknown as Settled<Values>);
}
