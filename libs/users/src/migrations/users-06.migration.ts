import type { Migration } from '@rookery/database';

/** What a session allowed is found when it ends: logins elsewhere, and the answer to its registration. */
export const sessionEndings: Migration = {
  version: 1,
  name: 'users_06_session_endings',
  cost: [{ tables: ['ui_auth_sessions'], secondsPerMillion: 1 }],
  async up(tx) {
    await tx.run('ALTER TABLE login_tokens ADD COLUMN device_id TEXT');
    await tx.run('CREATE INDEX ui_auth_sessions_outcome ON ui_auth_sessions (outcome) WHERE outcome IS NOT NULL');
  },
  async back(tx) {
    await tx.run('DROP INDEX ui_auth_sessions_outcome');
    await tx.run('ALTER TABLE login_tokens DROP COLUMN device_id');
  },
};
