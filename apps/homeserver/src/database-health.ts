import { type DataStores, isStorageFull, isTransient } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock } from '@rookery/platform';
import { ping } from './database-health.query.js';

/** How long a database may take to say that it is there, milliseconds. A busy one is not away. */
const patienceMs = 10_000;
/** When clients are to come again, milliseconds. */
const retryMs = 5_000;

/** What a client is told of an error of the database: 507 `M_UNKNOWN` for a full disk, 503 `M_UNKNOWN` while it is away. */
export function databaseProblem(error: unknown): MatrixError | undefined {
  if (isStorageFull(error)) return MatrixError.storageFull();
  if (isTransient(error))
    return MatrixError.unavailable('The database is away for the moment', { retry_after_ms: retryMs });
  return undefined;
}

/** Whether the database answers; both do, where state has one of its own. */
export async function isDatabaseThere({ main, state }: DataStores, clock: Clock): Promise<boolean> {
  const answered = new AbortController();
  try {
    return await Promise.race([
      Promise.all([...new Set([main, state])].map((one) => ping(one))).then(() => true),
      clock.sleep(patienceMs, answered.signal).then(() => false),
    ]);
  } catch {
    return false;
  } finally {
    answered.abort();
  }
}
