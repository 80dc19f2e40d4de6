import type { Tx } from '@rookery/database';

/** What an event means to everybody in its room lies in its row; the lib of notifications says what is in the columns. */
const statements = ['push_thread TEXT', 'push_highlight SMALLINT', 'push_actions TEXT', 'push_except TEXT'].map(
  (column) => `ALTER TABLE events ADD COLUMN ${column}`,
);

/** The notes that hooks give events. */
export async function pushNotesSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
