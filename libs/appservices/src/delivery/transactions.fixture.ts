import type { Database } from '@rookery/database';
import { SilentLogger, SystemClock } from '@rookery/platform';
import { type Bus, Notifier, type Rpc, Streams, StreamWriters } from '@rookery/replication';
import { MemoryProcesses } from '@rookery/testing';
import { TransactionStore } from './transaction-store.js';
import { WaitingTransactions } from './waiting-transactions.js';

/** Those who may send what lies in a store: the process that writes, and another one. */
export interface Senders {
  readonly here: WaitingTransactions;
  readonly elsewhere: WaitingTransactions;
}

export function sendersOf(database: Database, store: TransactionStore): Senders {
  const network = new MemoryProcesses();
  const member = (name: string, own: TransactionStore): WaitingTransactions => {
    const { bus, rpc }: { bus: Bus; rpc: Rpc } = network.connect(name);
    const notifier = new Notifier(new SystemClock(), bus, { instance: name });
    const streams = new Streams(database, notifier, { writers: new StreamWriters(name, {}, 'main'), rpc });
    return new WaitingTransactions(database, own, bus, rpc, streams, new SilentLogger());
  };
  return { here: member('main', store), elsewhere: member('other', new TransactionStore(database)) };
}
