import { Injectable } from '@nestjs/common';
import { Database, DatabaseError, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { KeyedMutex } from '@rookery/platform';
import {
  openTransactionIds,
  settingStatements,
  type TransactionIds,
  txnIdPosition,
  txnIdSequence,
} from './transaction-ids.query.js';
import {
  highestTransactionId,
  insertTransactions,
  isStored,
  oldestTransaction,
  oldestTransactionId,
  type Transaction,
  type TransactionExtras,
  updateEventIds,
} from './transactions.query.js';

/** Most events, and most to-device messages, of one transaction. */
export const transactionLimit = 100;
/**
 * How much text of events or to-device messages makes a transaction large enough, bytes; one that is more goes alone. Far below what proxies
 * let through by default (1 MiB): as they are sent, events bring along what was before them.
 */
export const transactionBytes = 512 * 1024;

/** Something new for a service. */
export interface Parcel extends TransactionExtras {
  readonly asId: string;
  readonly eventIds?: readonly string[];
  /** How much text all of it is, about, bytes: no more than {@link transactionBytes}, where it is not one piece. Little unless told. */
  readonly sizeBytes?: number;
}

interface Growing {
  readonly transaction: Transaction;
  readonly sizeBytes: number;
}

/**
 * The transactions that services have not taken, in the process that writes. What is new joins the newest transaction while nobody has
 * begun to send that, so that a service which is slow or down gets few large ones. Which those are lies in memory: what an earlier process
 * stored never grows.
 */
@Injectable()
export class TransactionStore {
  /** By service: the newest transaction, while it may grow. */
  readonly #growing = new Map<string, Growing>();
  /** Reading a transaction to send it and adding to it exclude each other. */
  readonly #locks = new KeyedMutex({ maxWaiting: 1_000, refuse: () => MatrixError.limitExceeded(2_000) });
  #opened: TransactionIds | undefined;

  constructor(private readonly database: Database) {}

  /** @throws DatabaseError when the sequence of ids stands before a transaction that is stored */
  async check(): Promise<void> {
    const [position, highest] = await Promise.all([txnIdPosition(this.database), highestTransactionId(this.database)]);
    if (position < highest) {
      throw new DatabaseError(
        `The sequence ${txnIdSequence} stands at ${position}, but application_services_txns has a transaction ${highest}.`,
        [
          `Stop every process of the server, set the sequence to ${highest}, the highest txn_id, and start again:`,
          ...settingStatements(this.database, highest),
        ].join('\n  '),
      );
    }
  }

  /** Loads the sequence of ids. @throws DatabaseError as {@link check} */
  async open(): Promise<void> {
    await this.check();
    this.#opened = await openTransactionIds(this.database);
  }

  /** Whether this process adds to them: it writes. */
  get isOpen(): boolean {
    return this.#opened !== undefined;
  }

  /** An id for a transaction that is not stored. */
  nextId(): Promise<number> {
    return this.database.write(async (tx) => (await this.#ids.takeIn(tx, 1))[0] ?? 0, { name: 'appservice_txn_id' });
  }

  /**
   * Stores what is new, in one transaction of the database.
   * @param also what else it writes
   */
  async add(parcels: readonly Parcel[], also: (tx: Tx) => Promise<void>): Promise<void> {
    const services = [...new Set(parcels.map(({ asId }) => asId))].sort();
    await this.#exclusively(services, async () => {
      const grown = new Map<string, Growing>();
      const fresh: (Omit<Transaction, 'txnId'> & { readonly sizeBytes: number })[] = [];
      for (const { asId, eventIds = [], toDevice = [], changed, sizeBytes = 0 } of parcels) {
        const isNewest = !fresh.some((one) => one.asId === asId);
        const newest = isNewest ? (grown.get(asId) ?? this.#growing.get(asId)) : undefined;
        const growing = newest && newest.sizeBytes + sizeBytes <= transactionBytes ? newest : undefined;
        const before = growing?.transaction.eventIds ?? [];
        const joining = growing ? eventIds.slice(0, transactionLimit - before.length) : [];
        if (growing && joining.length > 0)
          grown.set(asId, {
            transaction: { ...growing.transaction, eventIds: before.concat(joining) },
            sizeBytes: growing.sizeBytes + sizeBytes,
          });
        const left = eventIds.slice(joining.length);
        const extras = { ...(toDevice.length > 0 ? { toDevice } : {}), ...(changed ? { changed } : {}) };
        if (Object.keys(extras).length > 0)
          fresh.push({ asId, eventIds: left.splice(0, transactionLimit), ...extras, sizeBytes });
        while (left.length > 0) fresh.push({ asId, eventIds: left.splice(0, transactionLimit), sizeBytes });
      }
      let made: Growing[] = [];
      await this.database.write(
        async (tx) => {
          const ids = fresh.length > 0 ? await this.#ids.takeIn(tx, fresh.length) : [];
          made = fresh.map(({ sizeBytes, ...one }, index) => ({
            transaction: { ...one, txnId: ids[index] ?? 0 },
            sizeBytes,
          }));
          for (const { transaction } of grown.values())
            await updateEventIds(tx, transaction.asId, transaction.txnId, transaction.eventIds);
          if (made.length > 0) await insertTransactions(tx, transactionsOf(made));
          await also(tx);
        },
        // Nobody takes it meanwhile: whoever wants to waits for the lock.
        {
          name: 'appservice_transactions',
          ...(grown.size + fresh.length > 0 && {
            happened: (db) => {
              const [first] = transactionsOf([...grown.values(), ...made]);
              return first === undefined ? Promise.resolve(false) : isStored(db, first);
            },
          }),
        },
      );
      for (const one of [...grown.values(), ...made]) this.#growing.set(one.transaction.asId, one);
    });
  }

  /** The transaction that a service has to take next; from now on it stays as it is. */
  next(asId: string): Promise<Transaction | undefined> {
    return this.#begin(asId, oldestTransaction);
  }

  /**
   * The id of that transaction, for another process that sends it: from now on it stays as it is. It is read here, so that a process
   * which has lost the right to write without knowing cannot say it of one that its successor adds to.
   */
  async nextTxnId(asId: string): Promise<number | undefined> {
    return (await this.#begin(asId, oldestTransactionId))?.txnId;
  }

  #begin<Found extends { readonly txnId: number }>(
    asId: string,
    read: (db: Database, asId: string) => Promise<Found | undefined>,
  ): Promise<Found | undefined> {
    return this.#locks.run(asId, async () => {
      const found = await read(this.database, asId);
      if (this.#growing.get(asId)?.transaction.txnId === found?.txnId) this.#growing.delete(asId);
      return found;
    });
  }

  get #ids(): TransactionIds {
    if (!this.#opened) throw new Error('TransactionStore.open() has not finished');
    return this.#opened;
  }

  /** @param services sorted, so that two who want several never wait for each other */
  #exclusively(services: readonly string[], work: () => Promise<void>): Promise<void> {
    const [first, ...others] = services;
    return first === undefined ? work() : this.#locks.run(first, () => this.#exclusively(others, work));
  }
}

const transactionsOf = (list: readonly Growing[]): Transaction[] => list.map(({ transaction }) => transaction);
