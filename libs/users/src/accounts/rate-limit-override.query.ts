import type { Db, Tx } from '@rookery/database';
import type { RateLimit } from '@rookery/http';

export async function findRateLimitOverride(db: Db, userId: string): Promise<RateLimit | undefined> {
  const row = await db.get<{ messages_per_second: number | null; burst_count: number | null }>(
    'SELECT messages_per_second, burst_count FROM ratelimit_override WHERE user_id = ?',
    [userId],
  );
  return row && { perSecond: row.messages_per_second ?? 0, burstCount: row.burst_count ?? 0 };
}

export async function writeRateLimitOverride(tx: Tx, userId: string, limit: RateLimit): Promise<void> {
  await tx.run(
    `INSERT INTO ratelimit_override (user_id, messages_per_second, burst_count) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET messages_per_second = excluded.messages_per_second, burst_count = excluded.burst_count`,
    [userId, limit.perSecond, limit.burstCount],
  );
}

export async function deleteRateLimitOverride(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM ratelimit_override WHERE user_id = ?', [userId]);
}
