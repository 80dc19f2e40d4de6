import type { Migration } from '@rookery/database';

/** The table of the followers' cursors. */
export const replicationMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'replication_01_stream_cursors',
    async up(tx) {
      await tx.run('CREATE TABLE stream_cursors (name TEXT NOT NULL PRIMARY KEY, position BIGINT NOT NULL)');
    },
  },
];
