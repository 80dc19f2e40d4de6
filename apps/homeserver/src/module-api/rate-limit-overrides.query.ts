import type { Db } from '@rookery/database';
import type { RateLimit } from '@rookery/http';

/** The numbers that an administrator gave a user. Nothing per second means no limit. */
export async function rateLimitOf(db: Db, userId: string): Promise<RateLimit | undefined> {
  const row = await db.get<{ messages_per_second: number | null; burst_count: number | null }>(
    'SELECT messages_per_second, burst_count FROM ratelimit_override WHERE user_id = ?',
    [userId],
  );
  return row && { perSecond: row.messages_per_second ?? 0, burstCount: row.burst_count ?? 0 };
}
