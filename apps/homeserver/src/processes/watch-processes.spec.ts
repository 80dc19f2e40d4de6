import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { SilentLogger } from '@rookery/platform';
import { eventually, RecordingLogger } from '@rookery/testing';
import { WatchedProcesses } from './watch-processes.js';

/** Notes when it began and when it was ready, which takes a while. */
const program = `
const { writeFileSync } = require('node:fs');
const beganAtMs = Date.now();
setTimeout(() => {
  writeFileSync(process.argv[2] + '/' + process.pid, JSON.stringify({ beganAtMs, readyAtMs: Date.now() }));
  process.send('ready');
}, 300);
process.on('message', () => {});
process.on('disconnect', () => process.exit());
process.on('SIGTERM', () => process.exit());
`;

/** Is not ready before it is told so by a file; until then nothing minds a signal. Says how often it has reloaded. */
const hastyProgram = `
const { existsSync, writeFileSync } = require('node:fs');
const note = (what) => writeFileSync(process.argv[2] + '/' + what + process.pid, '');
process.on('message', () => {});
process.on('disconnect', () => process.exit());
let reloads = 0;
const waiting = setInterval(() => {
  if (!existsSync(process.argv[2] + '/go' + process.pid)) return;
  clearInterval(waiting);
  process.on('SIGHUP', () => {
    reloads++;
    note('reloaded');
    const report = { changed: [String(reloads)], modules: { added: [], changed: [], removed: [] }, left: [] };
    process.send({ reloaded: { report } });
  });
  process.send('ready');
}, 10);
note('began');
`;

interface Times {
  readonly beganAtMs: number;
  readonly readyAtMs: number;
}

describe('Processes of one machine', () => {
  it('begin later where the system cannot begin one, which ends none of the others', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
    const notes = mkdtempSync(join(folder, 'notes-'));
    const file = join(folder, 'program.cjs');
    writeFileSync(file, program);
    const { execPath } = process;
    const logger = new RecordingLogger();
    const watched = new WatchedProcesses({ count: 1, program: file, args: [notes], logger });
    try {
      await eventually(() => readdirSync(notes).length === 1);
      const [first = 0] = watched.pids;
      process.execPath = join(folder, 'missing');
      process.kill(first, 'SIGKILL');
      const failures = (): number => logger.lines.filter(({ level }) => level === 'error').length;
      await eventually(() => failures() === 1);
      // Nor where it throws.
      process.execPath = '\0';
      await eventually(() => failures() === 2);
      process.execPath = execPath;
      await eventually(() => readdirSync(notes).length === 2);
    } finally {
      process.execPath = execPath;
      await watched.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('are not tried again where the first cannot be begun', async () => {
    const { execPath } = process;
    const logger = new RecordingLogger();
    process.execPath = join(tmpdir(), 'missing');
    try {
      const watched = new WatchedProcesses({ count: 2, program: 'program.cjs', args: [], logger });
      await watched.failed;
      await watched.stop();
    } finally {
      process.execPath = execPath;
    }
    expect(logger.lines.map(({ level }) => level)).toEqual(['error']);
  });

  it('take over what changed while they started once they are ready, and are not ended by being told before', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
    const notes = mkdtempSync(join(folder, 'notes-'));
    const file = join(folder, 'program.cjs');
    writeFileSync(file, hastyProgram);
    const watched = new WatchedProcesses({ count: 2, program: file, args: [notes], logger: new SilentLogger() });
    const noted = (what: string): string[] => readdirSync(notes).filter((name) => name.startsWith(what));
    const goOn = (name = ''): void => writeFileSync(join(notes, name.replace('began', 'go')), '');
    const nothing = { changed: [], modules: { added: [], changed: [], removed: [] }, left: [] };
    let failed = false;
    void watched.failed.then(() => (failed = true));
    try {
      await eventually(() => noted('began').length === 1);
      const [first] = noted('began');
      const left = [`process ${watched.pids[0]} takes it over when it has started`];
      expect(await watched.reload()).toEqual({ report: { ...nothing, left } });
      expect(await watched.reload()).toEqual({ report: { ...nothing, left } });
      goOn(first);
      await eventually(() => noted('reloaded').length === 1);
      await eventually(() => noted('began').length === 2);
      // Of the one that has begun, while the other begins.
      expect(await watched.reload()).toEqual({
        report: { ...nothing, changed: ['2'], left: [`process ${watched.pids[1]} takes it over when it has started`] },
      });
      goOn(noted('began').find((name) => name !== first));
      await eventually(() => noted('reloaded').length === 2);
      expect(await watched.reload()).toEqual({ report: { ...nothing, changed: ['3', '2'] } });
      expect(noted('began')).toHaveLength(2);
      expect(failed).toBe(false);
    } finally {
      await watched.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('start one first, then no more at a time than there are processors', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
    const notes = mkdtempSync(join(folder, 'notes-'));
    const file = join(folder, 'program.cjs');
    writeFileSync(file, program);
    const count = availableParallelism() + 3;
    const watched = new WatchedProcesses({ count, program: file, args: [notes], logger: new SilentLogger() });
    try {
      await eventually(() => readdirSync(notes).length === count);
      const times = readdirSync(notes)
        .map((name) => JSON.parse(readFileSync(join(notes, name), 'utf8')) as Times)
        .sort((one, other) => one.beganAtMs - other.beganAtMs);
      const [first, ...others] = times as [Times, ...Times[]];
      for (const other of others) expect(other.beganAtMs).toBeGreaterThanOrEqual(first.readyAtMs);
      for (const { beganAtMs } of times) {
        const starting = times.filter((one) => one.beganAtMs <= beganAtMs && one.readyAtMs > beganAtMs);
        expect(starting.length).toBeLessThanOrEqual(availableParallelism());
      }
    } finally {
      await watched.stop();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
