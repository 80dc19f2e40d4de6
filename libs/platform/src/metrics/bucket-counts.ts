type Labels = Readonly<Record<string, string>>;

/** Upper bounds where nothing else is said. */
const usualBounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

interface Value {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

class Child {
  readonly counts: number[];
  sum = 0;
  count = 0;

  constructor(
    readonly labels: Labels,
    readonly bounds: readonly number[],
  ) {
    this.counts = new Array<number>(bounds.length).fill(0);
  }

  observe(value: number): void {
    this.sum += value;
    this.count++;
    const { bounds } = this;
    for (let i = 0; i < bounds.length; i++) {
      if (value <= bounds[i]!) {
        this.counts[i]!++;
        return;
      }
    }
  }
}

/** A histogram of which a combination of labels can be kept, so that counting is a few additions. */
export class BucketCounts {
  readonly type = 'histogram';
  readonly #children = new Map<string, Child>();

  constructor(
    readonly name: string,
    readonly help: string,
    private readonly labelNames: readonly string[],
    private readonly bounds: readonly number[] = usualBounds,
  ) {
    if (labelNames.length === 0) this.child({});
  }

  observe(labels: Labels, value: number): void {
    this.child(labels).observe(value);
  }

  child(labels: Labels): Child {
    const key = this.labelNames.map((name) => labels[name] ?? '').join('\0');
    let child = this.#children.get(key);
    if (child === undefined) this.#children.set(key, (child = new Child(labels, this.bounds)));
    return child;
  }

  /** What the registry writes down. */
  async get(): Promise<{ name: string; help: string; type: string; aggregator: string; values: Value[] }> {
    const { name, help, type } = this;
    const values = [...this.#children.values()].flatMap(({ labels, bounds, counts, sum, count }) => {
      let below = 0;
      const buckets = bounds.map((le, i) => ({
        metricName: `${name}_bucket`,
        labels: { ...labels, le },
        value: (below += counts[i]!),
      }));
      return [
        ...buckets,
        { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: count },
        { metricName: `${name}_sum`, labels, value: sum },
        { metricName: `${name}_count`, labels, value: count },
      ];
    });
    return Promise.resolve({ name, help, type, aggregator: 'sum', values });
  }
}
