import { type BackgroundUpdate, databaseMigrations, type Migration } from '@rookery/database';
import { pushMigrations } from '@rookery/push';
import { replicationMigrations } from '@rookery/replication';
import { roomsMigrations } from '@rookery/rooms';
import { usersMigrations } from '@rookery/users';

/** Every table of the server, in the order in which they are made. */
export const migrations: readonly Migration[] = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...pushMigrations,
];

/** Long work on the data, which runs while the server does. */
export const backgroundUpdates: readonly BackgroundUpdate[] = [];
