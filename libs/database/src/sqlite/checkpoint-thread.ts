/** What runs in the thread of {@link Checkpoints}: moves pages from the log into the file whenever it is told to, and says when it has. */
import { parentPort, workerData } from 'node:worker_threads';
import Sqlite from 'better-sqlite3';
import type { CheckpointReport } from './checkpoints.js';

/** Of pages that were written meanwhile so many may be left, and so often those are moved as well. */
const [fewPages, maxRounds] = [256, 8];

const { path } = workerData as { readonly path: string };
const handle = new Sqlite(path, { fileMustExist: true });
// The log reaches the disk before the file is changed, and the file before the log is written anew.
handle.pragma('synchronous = FULL');
const checkpoint = handle.prepare<[], CheckpointReport>('PRAGMA wal_checkpoint(PASSIVE)');

parentPort?.on('message', (message: 'move' | 'end') => {
  if (message === 'end') {
    handle.close();
    parentPort?.close();
    return;
  }
  let moved = -1;
  for (let round = 0; round < maxRounds; round++) {
    const { log, checkpointed } = checkpoint.get()!;
    // Whoever reads an old state, a backup for instance, keeps what is newer in the log.
    if (log - checkpointed <= fewPages || checkpointed === moved) break;
    moved = checkpointed;
  }
  parentPort?.postMessage('moved');
});
