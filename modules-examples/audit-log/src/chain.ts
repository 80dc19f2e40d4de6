import { createHmac } from 'node:crypto';

/** A thing that happened. */
export interface Entry {
  readonly n: number;
  readonly ts: number;
  readonly what: string;
  readonly who: string | null;
  readonly details: Readonly<Record<string, unknown>>;
  /** Over all of it and the seal of the entry before. */
  readonly seal: string;
}

/** What stands before the first entry. */
export const beginning = { n: 0, seal: '' } as const;

/** Seals an entry onto the one before. */
export function sealed(key: string, before: Pick<Entry, 'n' | 'seal'>, given: Omit<Entry, 'n' | 'seal'>): Entry {
  const n = before.n + 1;
  return { n, ...given, seal: sealOf(key, before.seal, { n, ...given }) };
}

function sealOf(key: string, before: string, { n, ts, what, who, details }: Omit<Entry, 'seal'>): string {
  const text = JSON.stringify([before, n, ts, what, who, canonical(details)]);
  return createHmac('sha256', key).update(text).digest('base64url');
}

/** The same for the same, whatever the order of keys. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== 'object' || value === null) return value;
  const object = value as Record<string, unknown>;
  return Object.keys(object)
    .sort()
    .map((key) => [key, canonical(object[key])]);
}

/** The number of the first entry that is not what was written there, or is missing; `undefined` where all is in order. */
export function broken(key: string, before: Pick<Entry, 'n' | 'seal'>, entries: readonly Entry[]): number | undefined {
  let last = before;
  for (const entry of entries) {
    const { seal, ...rest } = entry;
    if (entry.n !== last.n + 1 || seal !== sealOf(key, last.seal, rest)) return last.n + 1;
    last = entry;
  }
  return undefined;
}
