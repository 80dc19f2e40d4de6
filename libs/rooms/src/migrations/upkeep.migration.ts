import type { Tx } from '@rookery/database';

const statements = [
  `CREATE TABLE scheduled_tasks (
    id TEXT PRIMARY KEY, action TEXT NOT NULL, status TEXT NOT NULL, timestamp BIGINT NOT NULL, resource_id TEXT,
    params TEXT, result TEXT, error TEXT)`,
  `CREATE INDEX scheduled_tasks_status ON scheduled_tasks (status)`,
  `CREATE INDEX scheduled_tasks_resource ON scheduled_tasks (resource_id)`,
];

/** Long work on rooms that survives a restart. */
export async function upkeepSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
