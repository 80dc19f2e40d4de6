/** A list in parts of so many, in order, for what is done with some at a time; the last may hold fewer. Of an empty list none. */
export function batchesOf<T>(list: readonly T[], size: number): (readonly T[])[] {
  const batches: (readonly T[])[] = [];
  for (let start = 0; start < list.length; start += size) batches.push(list.slice(start, start + size));
  return batches;
}

/**
 * A list in parts that are of so much together, or hold a single piece that is more, in order, for what is done with some at a time. Of an
 * empty list none.
 * @param count how many pieces a part holds at most
 */
export function batchesBySize<T>(
  list: readonly T[],
  sizeOf: (one: T) => number,
  size: number,
  count = Infinity,
): (readonly T[])[] {
  const batches: T[][] = [];
  let [last, left]: [T[] | undefined, number] = [undefined, 0];
  for (const one of list) {
    const own = sizeOf(one);
    if (last === undefined || own > left || last.length >= count) {
      batches.push((last = []));
      left = size;
    }
    last.push(one);
    left -= own;
  }
  return batches;
}
