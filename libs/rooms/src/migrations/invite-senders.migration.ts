import type { Tx } from '@rookery/database';

/** Who has sent how many invites can be asked without reading all memberships; other memberships do not cost anything. */
export async function inviteSendersSchema(tx: Tx): Promise<void> {
  await tx.run(`CREATE INDEX room_memberships_inviters ON room_memberships (sender) WHERE membership = 'invite'`);
}
