/** A binary heap: takes the smallest element in logarithmic time. */
export class Heap<T> {
  private readonly items: T[] = [];

  /** @param precedes whether the first of two elements is the smaller one */
  constructor(private readonly precedes: (a: T, b: T) => boolean) {}

  push(item: T): void {
    const { items, precedes } = this;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent] as T;
      if (!precedes(item, above)) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  /** Takes the smallest element; `undefined` when there is none. */
  pop(): T | undefined {
    const { items, precedes } = this;
    const top = items[0];
    const last = items.pop();
    if (items.length === 0 || last === undefined) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && precedes(items[child + 1] as T, items[child] as T)) child++;
      const below = items[child] as T;
      if (!precedes(below, last)) break;
      items[at] = below;
      at = child;
    }
    items[at] = last;
    return top;
  }
}
