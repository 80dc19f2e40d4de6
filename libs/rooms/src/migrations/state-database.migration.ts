import { hasTable, type Migration, type Tx } from '@rookery/database';

/** Tables as they came to be in a database that holds everything; those that were moved here from one are there already. */
const tables = (isSqlite: boolean): readonly string[] => {
  const end = isSqlite ? 'WITHOUT ROWID' : '';
  return [
    `CREATE TABLE IF NOT EXISTS state_groups (
       id ${isSqlite ? 'INTEGER' : 'BIGINT'} PRIMARY KEY, room_id TEXT NOT NULL, event_id TEXT NOT NULL,
       chain_position BIGINT NOT NULL DEFAULT 0)`,
    `CREATE TABLE IF NOT EXISTS state_group_edges (
       state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL
       ${isSqlite ? ', PRIMARY KEY (state_group, prev_state_group)' : ''}) ${end}`,
    `CREATE TABLE IF NOT EXISTS state_groups_state (
       state_group BIGINT NOT NULL, room_id TEXT NOT NULL, type TEXT NOT NULL, state_key TEXT NOT NULL,
       event_id TEXT NOT NULL, PRIMARY KEY (state_group, type, state_key)) ${end}`,
    `CREATE INDEX IF NOT EXISTS state_groups_room ON state_groups (room_id)`,
    `CREATE INDEX IF NOT EXISTS state_group_edges_prev ON state_group_edges (prev_state_group)`,
  ];
};

async function stateDatabaseSchema(tx: Tx): Promise<void> {
  const isSqlite = tx.dialect.name === 'sqlite';
  const isNew = !(await hasTable(tx, 'state_group_edges'));
  for (const statement of tables(isSqlite)) await tx.run(statement);
  // Where rows were moved here without it they may be doubled: the start sees that it is missing, and mends them.
  if (!isSqlite && isNew)
    await tx.run('CREATE UNIQUE INDEX state_group_edges_unique ON state_group_edges (state_group, prev_state_group)');
  await tx.run(
    `CREATE TABLE state_database_mark (
       link TEXT NOT NULL PRIMARY KEY, server_name TEXT NOT NULL, deletions BIGINT NOT NULL DEFAULT 0)`,
  );
}

/** The tables of this lib in a database that holds nothing but state. */
export const roomsStateMigrations: readonly Migration[] = [
  { version: 1, name: 'rooms_state_01_groups', up: stateDatabaseSchema },
];
