import type { Db, SqlBool, Tx } from '@rookery/database';

/** A feature that was switched for a user. */
export interface FeatureRow {
  readonly feature: string;
  readonly enabled: SqlBool;
}

export function selectFeatures(db: Db, userId: string): Promise<FeatureRow[]> {
  return db.query<FeatureRow>('SELECT feature, enabled FROM per_user_experimental_features WHERE user_id = ?', [
    userId,
  ]);
}

export async function upsertFeatures(tx: Tx, userId: string, features: ReadonlyMap<string, boolean>): Promise<void> {
  await tx.insertMany(
    'per_user_experimental_features',
    ['user_id', 'feature', 'enabled'],
    [...features].map(([feature, enabled]) => [userId, feature, enabled]),
    'ON CONFLICT (user_id, feature) DO UPDATE SET enabled = excluded.enabled',
  );
}
