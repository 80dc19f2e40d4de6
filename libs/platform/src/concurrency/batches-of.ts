/** A list in parts of so many, in order, for what is done with some at a time; the last may hold fewer. Of an empty list none. */
export function batchesOf<T>(list: readonly T[], size: number): (readonly T[])[] {
  const batches: (readonly T[])[] = [];
  for (let start = 0; start < list.length; start += size) batches.push(list.slice(start, start + size));
  return batches;
}
