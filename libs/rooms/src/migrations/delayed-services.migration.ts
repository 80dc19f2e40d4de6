import type { Tx } from '@rookery/database';

/** Which application service left an event to be sent later. */
export async function delayedServicesSchema(tx: Tx): Promise<void> {
  await tx.run('ALTER TABLE delayed_events ADD COLUMN appservice_id TEXT');
}

export async function dropDelayedServices(tx: Tx): Promise<void> {
  await tx.run('ALTER TABLE delayed_events DROP COLUMN appservice_id');
}
