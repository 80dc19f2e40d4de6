const form = /^m(\d+)((?:~\d+\.\d+)*)$/;

/**
 * How far a stream of several writers is read: everything of everybody up to `base`, and of some writers further. Positions
 * of one stream are given out once, whoever writes; those of one writer become readable in order.
 *
 * Written as `42` where nobody is ahead, else as `m42~1.45~3.50`: writer 1 up to 45, writer 3 up to 50.
 */
export class WriterPositions {
  /** Everything up to here is read, whoever wrote it. */
  readonly base: number;
  /** Writers, by their numbers, of whom more is read than that. */
  readonly ahead: ReadonlyMap<number, number>;

  private constructor(base: number, ahead: Iterable<readonly [writer: number, position: number]>) {
    this.base = base;
    this.ahead = new Map([...ahead].filter(([, position]) => position > base));
  }

  /** Everything up to a position. */
  static at(base: number): WriterPositions {
    return new WriterPositions(base, []);
  }

  /** @returns `undefined` for what is no position */
  static parse(text: string): WriterPositions | undefined {
    if (/^\d+$/.test(text)) return checked(WriterPositions.at(Number(text)));
    const [, base, rest = ''] = form.exec(text) ?? [];
    if (base === undefined) return undefined;
    const ahead = rest
      .split('~')
      .slice(1)
      .map((entry) => entry.split('.').map(Number) as [number, number]);
    return checked(new WriterPositions(Number(base), ahead));
  }

  toString(): string {
    if (this.ahead.size === 0) return String(this.base);
    const entries = [...this.ahead].toSorted(([a], [b]) => a - b);
    return `m${this.base}${entries.map(([writer, position]) => `~${writer}.${position}`).join('')}`;
  }

  /** How far a writer is read. */
  of(writer: number): number {
    return this.ahead.get(writer) ?? this.base;
  }

  /** The furthest position of anybody: what a query has to look up to, before it leaves out what {@link includes} denies. */
  get max(): number {
    return Math.max(this.base, ...this.ahead.values());
  }

  /** Whether a row of a writer is among what is read. */
  includes(writer: number, position: number): boolean {
    return position <= this.of(writer);
  }

  /** Whether everything of this is read there as well. */
  isWithin(other: WriterPositions): boolean {
    const writers = [...this.ahead.keys(), ...other.ahead.keys()];
    return this.base <= other.base && writers.every((writer) => this.of(writer) <= other.of(writer));
  }

  /** What is read in one or the other. */
  union(other: WriterPositions): WriterPositions {
    return this.#with(other, Math.max);
  }

  /** What is read in both: how far a client goes on that asks two processes. */
  intersection(other: WriterPositions): WriterPositions {
    return this.#with(other, Math.min);
  }

  /** A writer's positions are readable up to here. */
  advance(writer: number, position: number): WriterPositions {
    return position <= this.of(writer) ? this : new WriterPositions(this.base, [...this.ahead, [writer, position]]);
  }

  /**
   * Nobody can write a position up to `base` any more: all writers have finished theirs, or given them up with their
   * transaction, or have lost the right to write.
   */
  settle(base: number): WriterPositions {
    return base <= this.base ? this : new WriterPositions(base, this.ahead);
  }

  #with(other: WriterPositions, choose: (a: number, b: number) => number): WriterPositions {
    const writers = new Set([...this.ahead.keys(), ...other.ahead.keys()]);
    return new WriterPositions(
      choose(this.base, other.base),
      [...writers].map((writer) => [writer, choose(this.of(writer), other.of(writer))] as const),
    );
  }
}

function checked(positions: WriterPositions): WriterPositions | undefined {
  const numbers = [positions.base, ...positions.ahead.keys(), ...positions.ahead.values()];
  return numbers.every(Number.isSafeInteger) ? positions : undefined;
}
