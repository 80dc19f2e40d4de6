import { FakeClock } from '@rookery/testing';
import { SystemClock } from './clock.js';
import { Lifecycle } from './lifecycle.js';
import { Logger, SilentLogger } from './logging/logger.js';

class Notes extends SilentLogger {
  readonly lines: string[] = [];
  override warn(message?: string, fields?: object): void {
    this.lines.push(`warn ${message} ${JSON.stringify(fields)}`);
  }
  override error(message?: string, fields?: object): void {
    this.lines.push(`error ${message} ${(fields as { step?: string }).step}`);
  }
}

function newLifecycle(logger: Logger = new SilentLogger()) {
  const log: string[] = [];
  const lifecycle = new Lifecycle(new SystemClock(), logger);
  const step = (name: string, more: { failStart?: boolean; failStop?: boolean; hang?: boolean } = {}) => ({
    name,
    start: async () => {
      await Promise.resolve();
      log.push(`+${name}`);
      if (more.failStart) throw new Error(`${name} failed`);
    },
    stop: async () => {
      log.push(`-${name}`);
      if (more.failStop) throw new Error('no');
      if (more.hang) await new Promise(() => undefined);
    },
  });
  return { lifecycle, log, step };
}

describe('the lifecycle', () => {
  it('starts in phases, within a phase in order, and stops in reverse', async () => {
    const { lifecycle, log, step } = newLifecycle();
    lifecycle.on('listen', step('listen'));
    lifecycle.on('streams', step('a'));
    lifecycle.on('config', step('config'));
    lifecycle.on('streams', step('b'));
    await lifecycle.start();
    expect([log, lifecycle.running, lifecycle.stopping.aborted]).toEqual([
      ['+config', '+a', '+b', '+listen'],
      true,
      false,
    ]);
    log.length = 0;
    await Promise.all([lifecycle.stop(), lifecycle.stop()]);
    expect([log, lifecycle.running, lifecycle.stopping.aborted]).toEqual([
      ['-listen', '-b', '-a', '-config'],
      false,
      true,
    ]);
  });

  it('stops what has started when a step fails, itself included, and passes the failure on', async () => {
    const { lifecycle, log, step } = newLifecycle();
    lifecycle.on('config', step('a'));
    lifecycle.on('migrate', step('b', { failStart: true }));
    lifecycle.on('listen', step('c'));
    await expect(lifecycle.start()).rejects.toThrow('b failed');
    expect(log).toEqual(['+a', '+b', '-b', '-a']);
    await expect(lifecycle.start()).rejects.toThrow('A server starts once');
  });

  it('does not let one step keep the others from stopping', async () => {
    const notes = new Notes();
    const { lifecycle, log, step } = newLifecycle(notes);
    lifecycle.on('config', step('first'));
    lifecycle.on('migrate', step('failing', { failStop: true }));
    lifecycle.on('listen', step('hanging', { hang: true }));
    await lifecycle.start();
    log.length = 0;
    const before = performance.now();
    await lifecycle.stop(50);
    expect(performance.now() - before).toBeLessThan(10_000);
    expect(log).toEqual(['-hanging', '-failing', '-first']);
    expect(notes.lines).toEqual([
      'warn Not stopped in time {"step":"hanging","limit_ms":50}',
      'error Failed to stop failing',
    ]);
  });

  it('leaves time to those that stop behind one that does not', async () => {
    const clock = new FakeClock();
    const log: string[] = [];
    const lifecycle = new Lifecycle(clock, new SilentLogger());
    lifecycle.on('config', { name: 'database', stop: () => void log.push('closed') });
    lifecycle.on('streams', { name: 'flush', stop: () => clock.sleep(500).then(() => void log.push('flushed')) });
    lifecycle.on('listen', { name: 'hanging', stop: () => new Promise(() => undefined) });
    await lifecycle.start();
    const stopped = lifecycle.stop(4_000);
    await clock.advance(3_500);
    await stopped;
    expect(log).toEqual(['flushed', 'closed']);
  });

  it('stops while it starts: what comes next does not start any more', async () => {
    const { lifecycle, log, step } = newLifecycle();
    lifecycle.on('config', step('a'));
    lifecycle.on('modules', { name: 'stopper', start: () => void lifecycle.stop() });
    lifecycle.on('listen', step('never'));
    await lifecycle.start();
    await lifecycle.stop();
    expect([log, lifecycle.running]).toEqual([['+a', '-a'], false]);
  });

  it('refuses steps that come too late', async () => {
    const { lifecycle, step } = newLifecycle();
    await lifecycle.start();
    expect(() => lifecycle.on('config', step('late'))).toThrow('too late');
    await lifecycle.stop();
  });
});
