import type { Tx } from '@rookery/database';

/** In the main database: by what it and a database of its own for state know each other. Empty where there is none. */
export async function stateLinkSchema(tx: Tx): Promise<void> {
  await tx.run('CREATE TABLE state_database_link (link TEXT NOT NULL PRIMARY KEY)');
}

/** A program that knows no such database would look for state in the main one. */
export async function dropStateLink(tx: Tx): Promise<void> {
  if ((await tx.get('SELECT 1 AS found FROM state_database_link')) !== undefined)
    throw new Error(
      'The state lies in a database of its own, which an older program does not know: move it back first',
    );
  await tx.run('DROP TABLE state_database_link');
}
