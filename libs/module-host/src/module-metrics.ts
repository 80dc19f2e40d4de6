import type { ModuleMetrics } from '@rookery/module-api';
import type { Metrics } from '@rookery/platform';
import type { ModuleScope } from './scope.js';

const maxMetrics = 100;
const maxLabels = 5;
const maxLabelSets = 1000;
const maxBuckets = 100;
const maxHelpLength = 1000;
/** Labels that mean something to the page itself. */
const taken = new Set(['le', 'quantile', 'server_name']);

type Kind = 'counter' | 'gauge' | 'histogram';
type Labels = Readonly<Record<string, string>>;

/** A metric as it is on the page, from its first definition until the process ends. */
interface Defined {
  readonly module: string;
  /** Everything that cannot change any more. */
  readonly shape: string;
  /** Combinations of labels that were used. */
  readonly seen: Set<string>;
  told: boolean;
}

/** By name of a line on the page. Modules come and go, and their prefixes may begin with each other's. */
const defined = new WeakMap<Metrics, Map<string, Defined>>();

function linesOf(kind: Kind, name: string): string[] {
  if (kind === 'counter') return [name.endsWith('_total') ? name : `${name}_total`];
  return kind === 'gauge' ? [name] : [name, `${name}_bucket`, `${name}_count`, `${name}_sum`];
}

/** Takes the lines of a metric for a module; one that it had before stays the same. @throws RangeError */
function define(metrics: Metrics, kind: Kind, name: string, module: string, shape: string): Defined {
  const known = defined.get(metrics) ?? new Map<string, Defined>();
  defined.set(metrics, known);
  const lines = linesOf(kind, name);
  const before = lines.map((line) => known.get(line)).find((one) => one !== undefined);
  if (before === undefined) {
    if (lines.some((line) => metrics.has(line))) throw new RangeError(`The server has a metric called ${name} itself`);
    const fresh: Defined = { module, shape, seen: new Set(), told: false };
    for (const line of lines) known.set(line, fresh);
    return fresh;
  }
  if (before.module !== module) throw new RangeError(`The metric ${name} is one of module ${before.module} already`);
  if (before.shape !== shape) {
    throw new RangeError(`The metric ${name} was defined otherwise before: what it is may change with a restart only`);
  }
  return before;
}

/**
 * `api.metrics` of one module: names get its prefix, and labels cannot fill the memory. A number that is none is left out: it is
 * no reason for a request to fail.
 */
export function metricsOf(scope: ModuleScope, metrics: Metrics | undefined): ModuleMetrics {
  const { module } = scope;
  const prefix = `rookery_module_${module.replace(/[^a-z0-9]/g, '_')}_`;
  const own = new Set<string>();

  /** Writes a value under its labels. */
  type Write = (labels: Labels | undefined, write: (labels: Record<string, string>) => void) => void;

  const prepare = (
    kind: Kind,
    name: string,
    help: string,
    labels: readonly string[],
    buckets?: readonly number[],
  ): {
    definition: { name: string; help: string; labels: readonly string[]; buckets?: readonly number[] };
    write: Write;
  } => {
    check(name, help, labels, buckets);
    if (!own.has(name) && own.size >= maxMetrics) throw new RangeError(`A module has at most ${maxMetrics} metrics`);
    own.add(name);
    const definition = {
      name: prefix + name,
      help,
      labels: [...labels],
      ...(buckets ? { buckets: [...buckets] } : {}),
    };
    if (!metrics) return { definition, write: () => {} };
    const shape = JSON.stringify([kind, labels, buckets]);
    const line = define(metrics, kind, definition.name, module, shape);
    return {
      definition,
      write(given, write) {
        const values = Object.fromEntries(labels.map((label) => [label, String(given?.[label] ?? '').slice(0, 200)]));
        const id = JSON.stringify(Object.values(values));
        if (line.seen.has(id) || line.seen.size < maxLabelSets) {
          line.seen.add(id);
          return write(values);
        }
        if (!line.told) scope.log.warn('A metric of a module has too many label values', { module, metric: name });
        line.told = true;
      },
    };
  };

  return Object.freeze({
    counter(name, help, labelNames = []) {
      const { definition, write } = prepare('counter', name, help, labelNames);
      const metric = metrics?.counter<string>(definition);
      return {
        inc(labels, by = 1) {
          if (Number.isFinite(by) && by >= 0) write(labels, (values) => metric?.inc(values, by));
        },
      };
    },
    gauge(name, help, labelNames = []) {
      const { definition, write } = prepare('gauge', name, help, labelNames);
      const metric = metrics?.gauge<string>(definition);
      return {
        set(value, labels) {
          if (Number.isFinite(value)) write(labels, (values) => metric?.set(values, value));
        },
      };
    },
    histogram(name, help, labelNames = [], buckets) {
      const { definition, write } = prepare('histogram', name, help, labelNames, buckets);
      const metric = metrics?.histogram<string>(definition);
      return {
        observe(value, labels) {
          if (Number.isFinite(value)) write(labels, (values) => metric?.observe(values, value));
        },
      };
    },
  } satisfies ModuleMetrics);
}

/** @throws RangeError for what cannot be on the page */
function check(name: string, help: string, labels: readonly string[], buckets: readonly number[] | undefined): void {
  if (!/^[a-z][a-z0-9_]{0,63}$/.test(name)) throw new RangeError(`${name} is no name of a metric: use a-z, 0-9 and _`);
  if (typeof help !== 'string' || help === '' || help.length > maxHelpLength) {
    throw new RangeError(`The metric ${name} needs a help text of 1 to ${maxHelpLength} characters`);
  }
  const areNames = Array.isArray(labels) && labels.every((label) => /^[a-z][a-z0-9_]{0,31}$/.test(label));
  if (!areNames || labels.length > maxLabels || new Set(labels).size < labels.length) {
    throw new RangeError(`The metric ${name} takes at most ${maxLabels} different labels of a-z, 0-9 and _`);
  }
  const own = labels.find((label) => taken.has(label));
  if (own !== undefined) throw new RangeError(`The metric ${name} cannot have the label ${own}`);
  if (buckets === undefined) return;
  const ascend = (bound: number, i: number): boolean =>
    Number.isFinite(bound) && !(bound <= (buckets[i - 1] ?? -Infinity));
  if (!Array.isArray(buckets) || buckets.length === 0 || buckets.length > maxBuckets || !buckets.every(ascend)) {
    throw new RangeError(
      `The buckets of the metric ${name} are 1 to ${maxBuckets} numbers, each larger than the one before`,
    );
  }
}
