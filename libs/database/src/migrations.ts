import type { Migration } from './database.js';

const backgroundUpdatesTable: Migration = {
  version: 1,
  name: 'database_02_background_updates',
  async up(tx) {
    await tx.run(`CREATE TABLE background_updates (
        update_name TEXT NOT NULL, progress_json TEXT NOT NULL, depends_on TEXT, ordering INTEGER NOT NULL DEFAULT 0, UNIQUE (update_name))`);
  },
};

/** The tables of this lib in a database that holds nothing but state. */
export const stateDatabaseMigrations: readonly Migration[] = [backgroundUpdatesTable];

/** The tables of this lib: stream positions and background updates. They come before every other lib's. */
export const databaseMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'database_01_stream_positions',
    async up(tx) {
      await tx.run(`CREATE TABLE stream_positions (
        stream_name TEXT NOT NULL, instance_name TEXT NOT NULL, stream_id BIGINT NOT NULL, UNIQUE (stream_name, instance_name))`);
    },
  },
  backgroundUpdatesTable,
  {
    version: 1,
    name: 'database_03_processes',
    async up(tx) {
      // Numbers are never used again: the connections of a process are known by its number.
      await tx.run(`CREATE TABLE processes (
        number ${tx.dialect.identityType}, name TEXT NOT NULL, address TEXT, version TEXT NOT NULL, roles TEXT NOT NULL,
        started_ts BIGINT NOT NULL, expires_ts BIGINT NOT NULL, fenced BOOLEAN NOT NULL)`);
      await tx.run(`CREATE TABLE leases (
        name TEXT NOT NULL PRIMARY KEY, holder BIGINT, epoch BIGINT NOT NULL)`);
    },
    async back(tx) {
      await tx.run('DROP TABLE leases');
      await tx.run('DROP TABLE processes');
    },
  },
  {
    version: 1,
    name: 'database_04_skipped_positions',
    async up(tx) {
      await tx.run(`CREATE TABLE skipped_positions (
        stream_name TEXT NOT NULL, after_position BIGINT NOT NULL, up_to_position BIGINT NOT NULL)`);
    },
    async back(tx) {
      await tx.run('DROP TABLE skipped_positions');
    },
  },
];
