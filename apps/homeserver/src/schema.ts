import { appservicesMigrations } from '@rookery/appservices';
import {
  type BackgroundUpdate,
  databaseMigrations,
  type Migration,
  stateDatabaseMigrations,
  type Tx,
} from '@rookery/database';
import { e2eeMigrations, reviveKeys } from '@rookery/e2ee';
import { ephemeralMigrations } from '@rookery/ephemeral';
import { askForAllDeviceLists, federationMigrations } from '@rookery/federation';
import { federationClientMigrations } from '@rookery/federation-client';
import { mediaMigrations } from '@rookery/media';
import { moduleApiMigrations } from '@rookery/module-services';
import { pushMigrations, pushNotesUpdate } from '@rookery/push';
import { replicationMigrations } from '@rookery/replication';
import { roomsMigrations, stateStore } from '@rookery/rooms';
import { messageIndexUpdate, searchMigrations, userDirectoryUpdate } from '@rookery/search';
import { ssoMigrations } from '@rookery/sso';
import { forgetConnections, syncMigrations } from '@rookery/sync';
import { templatesMigrations } from '@rookery/templates';
import { usersMigrations } from '@rookery/users';

/** Every table of the server, in the order in which they are made. */
export const migrations: readonly Migration[] = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...templatesMigrations,
  ...federationClientMigrations,
  ...usersMigrations,
  ...ssoMigrations,
  ...roomsMigrations,
  ...mediaMigrations,
  ...ephemeralMigrations,
  ...e2eeMigrations,
  ...pushMigrations,
  ...searchMigrations,
  ...syncMigrations,
  ...appservicesMigrations,
  ...federationMigrations,
  ...moduleApiMigrations,
];

/** Every table of a database that holds nothing but state. */
export const stateMigrations: readonly Migration[] = [...stateDatabaseMigrations, ...stateStore.migrations];

/** Long work on the data, which runs while the server does. */
export const backgroundUpdates: readonly BackgroundUpdate[] = [
  messageIndexUpdate,
  userDirectoryUpdate,
  pushNotesUpdate,
  stateStore.edges.update,
];

/** What a database asks for that was put back to an earlier day, before anybody is served from it. */
export const revivals: readonly ((tx: Tx, nowMs: number) => Promise<void>)[] = [
  reviveKeys,
  forgetConnections,
  askForAllDeviceLists,
];
