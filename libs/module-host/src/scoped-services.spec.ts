import { Metrics, SilentLogger, SystemClock } from '@rookery/platform';
import type { JobBackend } from './capabilities.js';
import { ModuleScope } from './scope.js';
import { metricsOf } from './module-metrics.js';
import { federationOf, schedulerOf } from './scoped-services.js';

class Lines extends SilentLogger {
  readonly lines: [string, Record<string, unknown> | undefined][] = [];
  override warn(message = '', fields?: Record<string, unknown>): void {
    this.lines.push([message, fields]);
  }
  override error(message = '', fields?: Record<string, unknown>): void {
    this.lines.push([message, fields]);
  }
}

const newScope = (): { scope: ModuleScope; log: Lines } => {
  const log = new Lines();
  return { scope: new ModuleScope({ name: 'my.module' }, new SystemClock(), log), log };
};

describe('the scheduler', () => {
  class Jobs implements JobBackend {
    readonly periodic = new Map<string, () => Promise<void>>();
    readonly handlers = new Map<string, (json: string) => Promise<void>>();
    readonly planned: unknown[][] = [];
    every(module: string, name: string, periodMs: number, job: () => Promise<void>): { cancel(): void } {
      this.periodic.set(`${module} ${name} ${periodMs}`, job);
      return { cancel: () => void this.periodic.delete(`${module} ${name} ${periodMs}`) };
    }
    handle(module: string, name: string, job: (json: string) => Promise<void>): { cancel(): void } {
      this.handlers.set(`${module} ${name}`, job);
      return { cancel: () => void this.handlers.delete(`${module} ${name}`) };
    }
    async runAt(...planned: unknown[]): Promise<void> {
      this.planned.push(planned);
    }
    async cancel(): Promise<boolean> {
      return true;
    }
  }
  const start = (): { jobs: Jobs; scheduler: ReturnType<typeof schedulerOf>; scope: ModuleScope; log: Lines } => {
    const { scope, log } = newScope();
    scope.begin();
    const jobs = new Jobs();
    return { jobs, scope, log, scheduler: schedulerOf(scope, jobs, () => {}) };
  };

  it('keeps jobs under the module’s name, logs their failures, and ends them with the module', async () => {
    const { jobs, scheduler, scope, log } = start();
    scheduler.every('clean', 60_000, () => {
      throw new Error('dirty');
    });
    await jobs.periodic.get('my.module clean 60000')?.();
    expect(log.lines).toMatchObject([[expect.any(String), { module: 'my.module', description: 'clean' }]]);
    scheduler.handle('remind', () => {});
    await scope.stop();
    expect(jobs.periodic.size + jobs.handlers.size).toBe(0);
  });

  it('begins with jobs once the module is in force, and never with those of one that is not', async () => {
    const [{ scope }, { scope: failing, log }] = [newScope(), newScope()];
    const jobs = new Jobs();
    const scheduler = schedulerOf(scope, jobs, () => {});
    scheduler.every('clean', 60_000, () => {});
    scheduler.every('off', 60_000, () => {}).cancel();
    scheduler.handle('remind', () => {});
    expect(jobs.periodic.size + jobs.handlers.size).toBe(0);
    const next = schedulerOf(failing, jobs, () => {});
    next.every('clean', 60_000, () => {});
    scope.begin();
    await failing.stop();
    failing.begin();
    next.every('late', 60_000, () => {});
    expect([...jobs.periodic.keys(), ...jobs.handlers.keys()]).toEqual(['my.module clean 60000', 'my.module remind']);
    expect(log.lines).toEqual([]);
  });

  it('hands payloads over frozen, and passes failures on so that they are tried again', async () => {
    const { jobs, scheduler } = start();
    const seen: unknown[] = [];
    scheduler.handle('remind', (payload) => {
      seen.push(payload);
      if ((payload as { fail?: boolean }).fail) throw new Error('again');
    });
    await scheduler.runAt('remind', 5, { to: ['@a:x'] }, 'key');
    expect(jobs.planned).toEqual([['my.module', 'remind', 5, '{"to":["@a:x"]}', 'key']]);
    await jobs.handlers.get('my.module remind')?.('{"to":["@a:x"]}');
    expect(seen).toEqual([{ to: ['@a:x'] }]);
    expect(Object.isFrozen((seen[0] as { to: unknown }).to)).toBe(true);
    await expect(jobs.handlers.get('my.module remind')?.('{"fail":true}')).rejects.toThrow('again');
  });

  it('takes no nonsense', async () => {
    const { scheduler } = start();
    scheduler.every('one', 1000, () => {});
    expect(() => scheduler.every('one', 1000, () => {})).toThrow(/already/);
    expect(() => scheduler.every('two', 999, () => {})).toThrow(RangeError);
    expect(() => scheduler.every('', 1000, () => {})).toThrow(RangeError);
    for (const period of [NaN, Infinity, 1e300, '9999' as never]) {
      expect(() => scheduler.every('two', period, () => {})).toThrow(RangeError);
    }
    for (const moment of [NaN, Infinity, 1e300, {} as never]) {
      await expect(scheduler.runAt('x', moment, {})).rejects.toThrow(RangeError);
    }
    await expect(scheduler.runAt('x', 1, 'y'.repeat(65_536))).rejects.toThrow(RangeError);
    await expect(scheduler.runAt('x', 1, () => {})).rejects.toThrow(TypeError);
    scheduler.every('again', 1000, () => {}).cancel();
    scheduler.every('again', 1000, () => {});
  });
});

describe('metrics', () => {
  it('carry the module’s name, and cannot fill the memory with labels', async () => {
    const { scope, log } = newScope();
    const metrics = new Metrics('example.org');
    const own = metricsOf(scope, metrics);
    const counter = own.counter('users_total', 'Users.', ['user']);
    for (let i = 0; i < 1100; i++) counter.inc({ user: `@u${i}:x` });
    counter.inc({ user: '@u1:x' });
    own.gauge('level', 'Level.').set(3);
    own.histogram('size', 'Size.', [], [1, 10]).observe(5);
    const { body } = await metrics.render();
    expect(body.match(/^rookery_module_my_module_users_total\{/gm)).toHaveLength(1000);
    expect(body).toMatch(/users_total\{[^}]*user="@u1:x"[^}]*\} 2/);
    expect(body).toMatch(/rookery_module_my_module_level\{[^}]*\} 3/);
    expect(body).toMatch(/rookery_module_my_module_size_bucket\{[^}]*le="10"[^}]*\} 1/);
    expect(log.lines).toEqual([[expect.any(String), { module: 'my.module', metric: 'users_total' }]]);
  });

  const scopeOf = (name: string): ModuleScope => new ModuleScope({ name }, new SystemClock(), new SilentLogger());

  it('are one and the same however often a module is loaded again, and bounded over all of it', async () => {
    const metrics = new Metrics('example.org');
    for (let load = 0; load < 50; load++) {
      const own = metricsOf(scopeOf('my.module'), metrics);
      const counter = own.counter('seen', 'Seen.', ['user']);
      counter.inc({ user: 'always' });
      for (let i = 0; i < 30; i++) counter.inc({ user: `${load} ${i}` });
    }
    const { body } = await metrics.render();
    expect(body).toMatch(/seen_total\{[^}]*user="always"[^}]*\} 50/);
    expect(body.match(/^rookery_module_my_module_seen_total\{/gm)).toHaveLength(1000);
    expect(body.match(/^# HELP rookery_module_my_module_seen_total /gm)).toHaveLength(1);
  });

  it('are nobody else’s, and stay what they are', () => {
    const metrics = new Metrics('example.org');
    metrics.histogram({ name: 'rookery_module_callback_seconds', help: 'Ours.' });
    metricsOf(scopeOf('a'), metrics).counter('b_seen', 'Seen.');
    metricsOf(scopeOf('a'), metrics).histogram('time', 'Time.', [], [1, 2]);
    expect(() => metricsOf(scopeOf('a_b'), metrics).counter('seen', 'Seen.')).toThrow(/is one of module a already/);
    expect(() => metricsOf(scopeOf('callback'), metrics).gauge('seconds', 'x')).toThrow(/The server has a metric/);
    const again = metricsOf(scopeOf('a'), metrics);
    again.histogram('time', 'Time.', [], [1, 2]).observe(1);
    expect(() => again.counter('b_seen', 'Seen.', ['user'])).toThrow(/with a restart only/);
    expect(() => again.gauge('b_seen_total', 'Seen.')).toThrow(/with a restart only/);
    expect(() => again.histogram('time', 'Time.', [], [1, 3])).toThrow(/with a restart only/);
    expect(() => again.gauge('time_count', 'x')).toThrow(/with a restart only/);
  });

  it('leave out what is no number', async () => {
    const metrics = new Metrics('example.org');
    const own = metricsOf(scopeOf('a'), metrics);
    const [counter, gauge, histogram] = [own.counter('c', 'c', ['l']), own.gauge('g', 'g'), own.histogram('h', 'h')];
    for (const odd of [NaN, Infinity, -Infinity, 'x' as never, null as never, {} as never, 7n as never]) {
      counter.inc({ l: 'x' }, odd);
      gauge.set(odd);
      histogram.observe(odd);
    }
    counter.inc(null as never);
    const { body } = await metrics.render();
    expect(body.match(/^rookery_module_a_\S+ (?!0$).*$/gm)).toEqual([expect.stringMatching(/a_c_total\{l="",.*\} 1$/)]);
  });

  it('take no nonsense', () => {
    const own = metricsOf(newScope().scope, undefined);
    for (const labels of [['le'], ['server_name'], ['a', 'a'], 'a' as never, [7 as never]]) {
      expect(() => own.counter('fine', 'x', labels)).toThrow(RangeError);
    }
    for (const buckets of [[], [1, 1], [2, 1], [NaN], ['x' as never], 7 as never, new Array<number>(101).fill(0)]) {
      expect(() => own.histogram('fine', 'x', [], buckets)).toThrow(RangeError);
    }
    for (const help of ['', undefined as never, 'x'.repeat(1001)]) {
      expect(() => own.gauge('fine', help)).toThrow(RangeError);
    }
    expect(() => own.counter('Upper', 'x')).toThrow(RangeError);
    expect(() => own.counter('fine', 'x', ['a', 'b', 'c', 'd', 'e', 'f'])).toThrow(RangeError);
    expect(() => own.counter('fine', 'x', ['not-a-label'])).toThrow(RangeError);
    for (let i = 0; i < 100; i++) own.counter(`m${i}`, 'x');
    expect(() => own.counter('one_more', 'x')).toThrow(/at most 100/);
    own.counter('m1', 'x').inc();
  });
});

describe('signed requests', () => {
  it('go to servers that are allowed, and to paths that are what they look like', async () => {
    const sent: unknown[] = [];
    const backend = {
      getJson: async (...given: unknown[]) => sent.push(given),
      putJson: async (...given: unknown[]) => sent.push(given),
    };
    const federation = federationOf('m', ['a.example'], backend);
    await federation.getJson('a.example', '/_matrix/federation/v1/query/profile?user_id=%40a%3Ab');
    await federation.putJson('a.example', '/_matrix/federation/v1/..a/x.', {});
    expect(sent).toHaveLength(2);
    for (const path of [
      '/_matrix/client/v3/x',
      '/_matrix/federation/../client/v3/x',
      '/_matrix/federation/v1/%2E%2e/%2e%2e/client',
      '/_matrix/federation/v1/.',
      '/_matrix/federation/v1/a b',
      '/_matrix/federation/v1/\r\nx: y',
      '/_matrix/federation/v1/\\x',
      '/_matrix/federation/v1/#x',
      '/_matrix/federation/v1/\u00e9',
    ]) {
      await expect(federation.getJson('a.example', path)).rejects.toThrow(RangeError);
      await expect(federation.putJson('a.example', path, {})).rejects.toThrow(RangeError);
    }
    await expect(federation.getJson('b.example', '/_matrix/federation/v1/x')).rejects.toMatchObject({ status: 403 });
    expect(sent).toHaveLength(2);
  });
});
