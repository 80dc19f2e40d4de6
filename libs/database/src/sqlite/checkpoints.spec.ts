import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { type Clock, SystemClock } from '@rookery/platform';
import { eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import { type CheckpointReport, Checkpoints } from './checkpoints.js';
import { SqliteConnection } from './sqlite-connection.js';

describe('Checkpoints', () => {
  /** Pages after which the log is moved; commits do it themselves with five times as many. */
  const pages = 40;
  let folder: string;
  let path: string;
  let handle: Sqlite.Database;
  let writer: SqliteConnection;
  let logger: RecordingLogger;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-checkpoints-'));
    path = join(folder, 'home.db');
    handle = new Sqlite(path);
    handle.pragma('journal_mode = WAL');
    handle.exec('CREATE TABLE things (id INTEGER PRIMARY KEY, text TEXT)');
    writer = new SqliteConnection(handle);
    logger = new RecordingLogger();
  });
  let checkpoints: Checkpoints;
  afterEach(async () => {
    await checkpoints.close();
    handle.close();
    await rm(folder, { recursive: true, force: true });
  });
  const begin = (of = path, clock: Clock = new SystemClock()): void => {
    checkpoints = new Checkpoints(writer, { pages, path: of, clock, logger });
  };
  /** At least so many pages, in one transaction. */
  const write = (count: number): void => {
    handle.exec('BEGIN');
    for (let i = 0; i < count; i++) writer.run('INSERT INTO things (text) VALUES (?)', ['x'.repeat(4_000)]);
    handle.exec('COMMIT');
  };
  const report = (): CheckpointReport => writer.get('PRAGMA wal_checkpoint(NOOP)')!;
  const isMoved = (): boolean => report().checkpointed === report().log;

  it('leaves a short log alone', async () => {
    begin();
    write(pages / 2);
    checkpoints.committed();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(report().checkpointed).toBe(0);
  });

  it('moves a long one on its thread, and the next commit begins the log anew', async () => {
    begin();
    for (let round = 0; round < 2; round++) {
      write(2 * pages);
      const { log, checkpointed } = report();
      expect(log).toBeGreaterThanOrEqual(2 * pages);
      expect(checkpointed).toBe(0);
      await eventually(() => {
        checkpoints.committed();
        return isMoved();
      });
      write(1);
      expect(report().log).toBeLessThan(pages);
    }
    expect(logger.messages('error')).toEqual([]);
  });

  it('waits with the rest of it for the end of a transaction', async () => {
    begin();
    write(2 * pages);
    checkpoints.committed();
    handle.exec('BEGIN IMMEDIATE');
    const reader = new Sqlite(path, { readonly: true });
    await eventually(() => {
      const { log, checkpointed } = reader.prepare<[], CheckpointReport>('PRAGMA wal_checkpoint(NOOP)').get()!;
      return checkpointed === log;
    });
    reader.close();
    writer.run('INSERT INTO things (text) VALUES (?)', ['meanwhile']);
    handle.exec('COMMIT');
    expect(isMoved()).toBe(false);
    // The thread may not have said yet what it has done.
    await eventually(() => {
      checkpoints.committed();
      return isMoved();
    });
  });

  it('lets the file go when it is closed in the middle of it', async () => {
    begin();
    write(4 * pages);
    checkpoints.committed();
    await checkpoints.close();
    handle.close();
    // Only the last one who has the file takes the log away.
    expect(existsSync(`${path}-wal`)).toBe(false);
    const again = new Sqlite(path, { readonly: true });
    expect(again.prepare('SELECT count(*) AS count FROM things').get()).toEqual({ count: 4 * pages });
    again.close();
  });

  it('ends the thread when there is nothing to move for a minute, and begins another one for what comes then', async () => {
    const clock = new FakeClock();
    /** The thread has the log open besides the writer. Only Linux tells; other threads of this process run other suites. */
    const isThere = (): boolean =>
      existsSync('/proc/self/fd') &&
      readdirSync('/proc/self/fd').filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`) === `${path}-wal`;
        } catch {
          return false;
        }
      }).length > 1;
    begin(path, clock);
    for (let round = 0; round < 2; round++) {
      write(2 * pages);
      await eventually(async () => {
        await clock.advance(20);
        checkpoints.committed();
        return isMoved();
      });
      if (process.platform === 'linux') expect(isThere()).toBe(true);
      // The minute begins when the thread has said what it moved, which may be later than it can be seen in the file.
      await eventually(async () => {
        await clock.advance(60_000);
        return !isThere();
      });
    }
  });

  it('leaves it to commits where there is no thread', async () => {
    begin(join(folder, 'not-there.db'));
    write(2 * pages);
    checkpoints.committed();
    await eventually(
      () => writer.get<{ wal_autocheckpoint: number }>('PRAGMA wal_autocheckpoint')!.wal_autocheckpoint === pages,
    );
    expect(logger.messages('error')).toHaveLength(1);
    write(1);
    expect(isMoved()).toBe(true);
    checkpoints.committed();
  });

  it('leaves it to commits where the disk fails behind the thread', async () => {
    begin();
    const pragma = handle.pragma.bind(handle);
    handle.pragma = (text, ...options) => {
      if (text === 'wal_checkpoint(PASSIVE)') throw new Error('disk I/O error');
      return pragma(text, ...options);
    };
    write(2 * pages);
    checkpoints.committed();
    await eventually(() => logger.messages('error').length === 1);
    handle.pragma = pragma;
    expect(writer.get('PRAGMA wal_autocheckpoint')).toEqual({ wal_autocheckpoint: pages });
    checkpoints.committed();
  });
});
