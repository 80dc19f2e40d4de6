import type { Db } from '@rookery/database';

/** How many there are of something, by what the labels of a metric say. */
export interface ServerFigures {
  /** Accounts in use, by the application service that made them; `native` for all others. */
  readonly accounts: readonly { readonly service: string; readonly total: number }[];
  /** Users who made a request since a time. */
  readonly active: number;
  readonly pushers: readonly { readonly kind: string; readonly appId: string; readonly total: number }[];
}

/** Most kinds of pushers that are told apart: clients choose the names. */
const maxApps = 100;

/** Counts what changes slowly; each table is read once. */
export async function serverFigures(db: Db, activeSinceTs: number): Promise<ServerFigures> {
  const [accounts, active, pushers] = await Promise.all([
    db.query<{ service: string; total: number }>(
      `SELECT COALESCE(appservice_id, 'native') AS service, COUNT(*) AS total FROM users
       WHERE deactivated = FALSE AND is_guest = FALSE GROUP BY COALESCE(appservice_id, 'native')`,
    ),
    db.get<{ total: number }>('SELECT COUNT(DISTINCT user_id) AS total FROM user_ips WHERE last_seen > ?', [
      activeSinceTs,
    ]),
    db.query<{ kind: string; app_id: string; total: number }>(
      `SELECT kind, app_id, COUNT(*) AS total FROM pushers GROUP BY kind, app_id ORDER BY COUNT(*) DESC LIMIT ${maxApps}`,
    ),
  ]);
  return {
    accounts: accounts.map(({ service, total }) => ({ service, total: Number(total) })),
    active: Number(active?.total ?? 0),
    pushers: pushers.map((row) => ({ kind: row.kind, appId: row.app_id, total: Number(row.total) })),
  };
}
