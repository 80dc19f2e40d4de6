import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';
import { Bus, defineRpc, Rpc, Streams } from '@rookery/replication';
import { sharedTransactionIds } from './transaction-ids.query.js';
import { TransactionStore } from './transaction-store.js';
import {
  deleteTransaction,
  findTransaction,
  oldestTransactionId,
  servicesDown,
  type Transaction,
  writeState,
} from './transactions.query.js';

/** Asks the process that writes which transaction a service has to take next; it stays as it is from then on. */
export const nextTransaction = defineRpc<{ readonly asId: string }, { readonly txnId: number | null }>(
  'appservice_next_transaction',
  { timeoutMs: 10_000 },
);

/** The transactions that services have to take, for whoever sends them, in any process. */
@Injectable()
export class WaitingTransactions {
  constructor(
    private readonly database: Database,
    private readonly store: TransactionStore,
    private readonly bus: Bus,
    private readonly rpc: Rpc,
    private readonly streams: Streams,
    private readonly logger: Logger,
  ) {
    rpc.handle(nextTransaction, async ({ asId }) => {
      if (!store.isOpen)
        throw MatrixError.unavailable('This process does not write transactions of application services');
      const txnId = (await store.nextTxnId(asId)) ?? null;
      // Whoever sends it hears first what became of its events, such as that one was redacted.
      await bus.told();
      return { txnId };
    });
  }

  /**
   * The transaction that a service has to take next. From now on it stays as it is, whichever process writes and whichever sends.
   * @returns `later`: it cannot be told now, since no process writes
   */
  async next(asId: string): Promise<Transaction | 'later' | undefined> {
    if (this.store.isOpen) return this.store.next(asId);
    // Nobody is asked where there is nothing. What another process has sent meanwhile is gone.
    while (await oldestTransactionId(this.database, asId)) {
      const txnId = await this.#ask(asId);
      if (txnId === 'later') return txnId;
      const found = txnId === null ? undefined : await findTransaction(this.database, asId, txnId);
      if (found) return found;
    }
    return undefined;
  }

  /** An id for a transaction that is not stored. */
  nextId(): Promise<number> {
    if (this.store.isOpen) return this.store.nextId();
    return this.database.write(async (tx) => (await sharedTransactionIds.takeIn(tx, 1))[0] ?? 0, {
      ...{ name: 'appservice_txn_id', anyProcess: true },
    });
  }

  /** A service has taken a transaction. @param wasDown it could not be reached before */
  async taken(asId: string, txnId: number, wasDown: boolean): Promise<void> {
    await this.database.write(
      async (tx) => {
        await deleteTransaction(tx, asId, txnId);
        if (wasDown) await writeState(tx, asId, 'up');
      },
      { name: 'appservice_taken', anyProcess: true },
    );
  }

  /** Notes whether a service can be reached. */
  async setState(asId: string, state: 'up' | 'down'): Promise<void> {
    await this.database.write((tx) => writeState(tx, asId, state), { name: 'appservice_state', anyProcess: true });
  }

  /** Services that could not be reached when it was last noted. */
  down(): Promise<Set<string>> {
    return servicesDown(this.database);
  }

  async #ask(asId: string): Promise<number | null | 'later'> {
    try {
      const { txnId } = await this.rpc.call(nextTransaction, { asId }, this.streams.writers.writerOf('events'));
      await this.bus.heard();
      return txnId;
    } catch (err) {
      if (!MatrixError.is(err) || err.status !== 503) throw err;
      this.logger.debug('The process that writes could not be asked for a transaction', { service: asId, err });
      return 'later';
    }
  }
}
