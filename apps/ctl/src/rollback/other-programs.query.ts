import type { Db } from '@rookery/database';

/** Programs other than this one that are connected to a PostgreSQL database, with the number of their connections. */
export function selectOtherPrograms(db: Db): Promise<{ name: string; total: number }[]> {
  return db.query<{ name: string; total: number }>(
    `SELECT application_name AS name, COUNT(*) AS total FROM pg_stat_activity
      WHERE datname = current_database() AND backend_type = 'client backend'
        AND application_name <> current_setting('application_name') GROUP BY application_name`,
  );
}
