import type { Migration } from '@rookery/database';

/** Users who count as active within the last thirty days, and when each was last seen; kept only where the settings ask. */
export const monthlyActiveUsers: Migration = {
  version: 1,
  name: 'users_03_monthly_active_users',
  async up(tx) {
    await tx.run(`CREATE TABLE monthly_active_users (
      user_id TEXT NOT NULL PRIMARY KEY,
      timestamp BIGINT NOT NULL
    )`);
    await tx.run('CREATE INDEX monthly_active_users_timestamp ON monthly_active_users (timestamp)');
  },
};
