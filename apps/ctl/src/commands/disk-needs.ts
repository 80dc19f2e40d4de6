import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseOptions, UpgradePlan } from '@rookery/database';

/** A file system with a database of SQLite. */
export interface Disk {
  /** The same for all that lies on it. */
  readonly id: string;
  readonly freeBytes: number;
}

/** What an upgrade takes of a disk, by all databases there together. */
export interface DiskNeed {
  readonly neededBytes: number;
  readonly freeBytes: number;
}

/** Where a database of SQLite lies; what a PostgreSQL server has is its own business. */
export function diskOf(options: DatabaseOptions): Disk | undefined {
  if (options.name !== 'sqlite3') return undefined;
  try {
    const folder = dirname(options.path);
    const { bavail, bsize } = statfsSync(folder);
    return { id: String(statSync(folder).dev), freeBytes: bavail * bsize };
  } catch {
    return undefined;
  }
}

/**
 * What upgrades need of each disk while they run. The steps of one database take what the one before has left; another database
 * needs its own, since a file keeps the room that it once took.
 */
export function diskNeeds(
  upgrades: readonly { readonly disk: Disk | undefined; readonly plan: Pick<UpgradePlan, 'steps'> | undefined }[],
): readonly DiskNeed[] {
  const needs = new Map<string, DiskNeed>();
  for (const { disk, plan } of upgrades) {
    if (disk === undefined) continue;
    const { id, freeBytes } = disk;
    const neededBytes = Math.max(0, ...(plan?.steps ?? []).map((step) => step.diskBytes));
    needs.set(id, { neededBytes: (needs.get(id)?.neededBytes ?? 0) + neededBytes, freeBytes });
  }
  return [...needs.values()].filter(({ neededBytes }) => neededBytes > 0);
}
