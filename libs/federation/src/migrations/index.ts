import type { Migration } from '@rookery/database';
import { inboundTables } from './federation-inbound.migration.js';
import { pendingDeviceTables, remoteDeviceTables, senderTables } from './federation-sender.migration.js';

/** The tables of federation, in the order in which they are made. */
export const federationMigrations: readonly Migration[] = [
  senderTables,
  remoteDeviceTables,
  inboundTables,
  pendingDeviceTables,
];
