import type { Migration, Tx } from '@rookery/database';

const ruleTables = [
  `CREATE TABLE push_rules (
     user_name TEXT NOT NULL, rule_id TEXT NOT NULL, priority_class SMALLINT NOT NULL, priority INTEGER NOT NULL DEFAULT 0,
     conditions TEXT NOT NULL, actions TEXT NOT NULL, PRIMARY KEY (user_name, rule_id))`,
  `CREATE TABLE push_rules_enable (
     user_name TEXT NOT NULL, rule_id TEXT NOT NULL, enabled SMALLINT NOT NULL, PRIMARY KEY (user_name, rule_id))`,
  `CREATE TABLE push_rules_stream (user_id TEXT PRIMARY KEY, stream_id BIGINT NOT NULL)`,
];

/** The tables of push rules, counts and pushers, in the order in which they are made. */
export const pushMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'push_01_rules',
    async up(tx: Tx): Promise<void> {
      for (const statement of ruleTables) await tx.run(statement);
    },
  },
];
