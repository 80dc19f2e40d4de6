import type { Migration } from '@rookery/database';

/**
 * Interactive auth remembers what was asked for, sealed, and what came of it. What is under way begins anew, so that
 * registration tokens do not stay in use by sessions that are gone.
 */
export const rememberedParameters: Migration = {
  version: 1,
  name: 'users_04_ui_auth_parameters',
  cost: [
    {
      tables: ['ui_auth_sessions', 'ui_auth_sessions_credentials', 'ui_auth_sessions_ips', 'registration_tokens'],
      secondsPerMillion: 5,
    },
  ],
  async up(tx) {
    for (const column of ['parameters TEXT', 'finished_ts BIGINT', 'outcome TEXT'])
      await tx.run(`ALTER TABLE ui_auth_sessions ADD COLUMN ${column}`);
    for (const table of ['ui_auth_sessions', 'ui_auth_sessions_credentials', 'ui_auth_sessions_ips'])
      await tx.run(`DELETE FROM ${table}`);
    await tx.run('UPDATE registration_tokens SET pending = 0');
  },
};
