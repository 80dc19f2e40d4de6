import type { Migration } from '@rookery/database';

/** Who was there on which day, for usage reports; empty unless they are sent. */
export const dailyVisits: Migration = {
  version: 1,
  name: 'users_05_daily_visits',
  async up(tx) {
    await tx.run(
      `CREATE TABLE user_daily_visits (
         user_id TEXT NOT NULL, device_id TEXT NOT NULL, timestamp BIGINT NOT NULL, user_agent TEXT,
         PRIMARY KEY (user_id, timestamp, device_id))`,
    );
    await tx.run('CREATE INDEX user_daily_visits_timestamp ON user_daily_visits (timestamp)');
  },
};
