import type { Database, Db } from '@rookery/database';
import { settingStatements, txnIdPosition, txnIdSequence } from './transaction-ids.query.js';
import { highestTransactionId } from './transactions.query.js';

/** What keeps the server from starting: the sequence of ids stands before a transaction that is stored. */
export async function sequenceProblem(db: Db): Promise<string | undefined> {
  const [position, highest] = await Promise.all([txnIdPosition(db), highestTransactionId(db)]);
  return position < highest
    ? `the sequence ${txnIdSequence} stands at ${position}, but application_services_txns has a transaction ${highest}`
    : undefined;
}

/** Sets the sequence to the highest transaction that is stored, where it stands before it. @returns where it stands now */
export async function mendSequence(database: Database): Promise<number | undefined> {
  return database.write(
    async (tx) => {
      const highest = await highestTransactionId(tx);
      if ((await txnIdPosition(tx)) >= highest) return undefined;
      for (const statement of settingStatements(tx, highest)) await tx.run(statement.replace(/;$/, ''));
      return highest;
    },
    { name: 'mend_appservice_sequence' },
  );
}
