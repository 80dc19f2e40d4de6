import type { Tx } from '@rookery/database';

/** Up to where messages of deleted devices are left in inboxes that were too long to go with them. */
export async function leftInboxesSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE device_inboxes_left (
       user_id TEXT NOT NULL, device_id TEXT NOT NULL, stream_id BIGINT NOT NULL, PRIMARY KEY (user_id, device_id))`,
  );
}

/** Programs that do not know the table would show what is left to a new device of the same name. */
export async function dropLeftInboxes(tx: Tx): Promise<void> {
  await tx.run(
    `DELETE FROM device_inbox WHERE EXISTS (
       SELECT 1 FROM device_inboxes_left l WHERE l.user_id = device_inbox.user_id
         AND l.device_id = device_inbox.device_id AND l.stream_id >= device_inbox.stream_id)`,
  );
  await tx.run('DROP TABLE device_inboxes_left');
}
