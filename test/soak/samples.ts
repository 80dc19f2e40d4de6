import { readdirSync, readFileSync, statSync } from 'node:fs';

/** What is drawn, and how much it may grow within an hour once the server has warmed up. */
export interface Measure {
  readonly name: string;
  readonly unit: string;
  /** The steepest slope allowed, units an hour; none for what grows with what is stored. */
  readonly growthPerHour?: number;
}

export type MeasureKey = 'resident' | 'heap' | 'delay' | 'descriptors' | 'database' | 'wal';
export const measures: Readonly<Record<MeasureKey, Measure>> = {
  resident: { name: 'resident memory', unit: 'MiB', growthPerHour: 24 },
  heap: { name: 'heap in use', unit: 'MiB', growthPerHour: 16 },
  delay: { name: 'event-loop delay, p99 of 10 s', unit: 'ms', growthPerHour: 20 },
  descriptors: { name: 'file descriptors', unit: 'open', growthPerHour: 10 },
  database: { name: 'database', unit: 'MiB' },
  wal: { name: 'write-ahead log', unit: 'MiB', growthPerHour: 32 },
};
export const measureKeys = Object.keys(measures) as MeasureKey[];

/** One look at the server, at so many minutes after the start. */
export type Sample = { readonly minute: number } & Readonly<Record<MeasureKey, number>>;

const mib = 1024 * 1024;

/** Bytes of a file; none when it is not there. */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** What the process shows about itself: by its metrics, and by the system. @param page of its metrics listener */
export function processSample(
  pid: number,
  page: string,
): { resident: number; heap: number; delay: number; descriptors: number } {
  const metric = (name: string): number => {
    const found = new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(page)?.[1];
    if (found === undefined) throw new Error(`the metrics have no ${name}`);
    return Number(found);
  };
  return {
    resident: Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024,
    heap: metric('nodejs_heap_size_used_bytes') / mib,
    delay: metric('nodejs_eventloop_lag_p99_seconds') * 1000,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

export const inMib = (bytes: number): number => bytes / mib;

/** Units an hour of the line that fits best (Theil and Sen: the median of all slopes, so that single peaks do not count). */
export function slopePerHour(samples: readonly Sample[], key: MeasureKey): number {
  const slopes: number[] = [];
  for (let i = 0; i < samples.length; i++) {
    for (let j = i + 1; j < samples.length; j++) {
      const [a, b] = [samples[i]!, samples[j]!];
      slopes.push(((b[key] - a[key]) / (b.minute - a.minute)) * 60);
    }
  }
  slopes.sort((a, b) => a - b);
  return slopes[Math.floor(slopes.length / 2)] ?? 0;
}
