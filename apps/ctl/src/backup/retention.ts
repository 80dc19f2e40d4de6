/** How many backups are kept; of a day, week or month the last one counts. */
export interface Retention {
  readonly last?: number;
  readonly daily?: number;
  readonly weekly?: number;
  readonly monthly?: number;
}

const dayMs = 86_400_000;
/** The first Monday of the count. */
const mondayMs = 4 * dayMs;

const periods = {
  last: ({ id }: Dated) => id,
  daily: ({ madeAtMs }: Dated) => String(Math.floor(madeAtMs / dayMs)),
  weekly: ({ madeAtMs }: Dated) => String(Math.floor((madeAtMs - mondayMs) / (7 * dayMs))),
  monthly: ({ madeAtMs }: Dated) => new Date(madeAtMs).toISOString().slice(0, 7),
} as const satisfies Record<keyof Retention, (backup: Dated) => string>;

/** A backup and when it was made. */
export interface Dated {
  readonly id: string;
  readonly madeAtMs: number;
}

/** Which backups stay, by day, week and month in UTC. The newest always does. */
export function keptOf(backups: readonly Dated[], retention: Retention): Set<string> {
  const newestFirst = backups.toSorted((one, other) => other.madeAtMs - one.madeAtMs || (one.id < other.id ? 1 : -1));
  const kept = new Set(newestFirst.slice(0, 1).map(({ id }) => id));
  for (const name of Object.keys(periods) as (keyof Retention)[]) {
    const seen = new Set<string>();
    for (const backup of newestFirst) {
      const period = periods[name](backup);
      if (seen.size >= (retention[name] ?? 0)) break;
      if (seen.has(period)) continue;
      seen.add(period);
      kept.add(backup.id);
    }
  }
  return kept;
}
