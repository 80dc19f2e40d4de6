import { Metrics } from './metrics.js';
import { metricTable } from './metric-table.js';

const linesOf = async (metrics: Metrics, name: string): Promise<string[]> =>
  (await metrics.render()).body.split('\n').filter((line) => line.startsWith(name));

describe('metrics', () => {
  it('shows the names that dashboards expect, with the server name', async () => {
    const metrics = new Metrics('example.org');
    metrics.counter('synapse_http_server_requests_received').inc({ method: 'GET', servlet: 'Sync' });
    metrics.counter('synapse_user_logins_total').inc({ guest: 'false', auth_provider: 'password' }, 2);
    metrics.gauge('synapse_notifier_users').set({}, 7);
    metrics.histogram('synapse_storage_query_time').observe({ verb: 'SELECT' }, 0.02);
    expect(await linesOf(metrics, 'synapse_http_server_requests_received')).toEqual([
      'synapse_http_server_requests_received_total{method="GET",servlet="Sync",server_name="example.org"} 1',
    ]);
    expect(await linesOf(metrics, 'synapse_user_logins')).toEqual([
      'synapse_user_logins_total{guest="false",auth_provider="password",server_name="example.org"} 2',
    ]);
    expect(await linesOf(metrics, 'synapse_notifier_users{')).toEqual([
      'synapse_notifier_users{server_name="example.org"} 7',
    ]);
    expect(await linesOf(metrics, 'synapse_storage_query_time_count')).toEqual([
      'synapse_storage_query_time_count{verb="SELECT",server_name="example.org"} 1',
    ]);
    expect(await linesOf(metrics, 'synapse_server_name_info')).toEqual([
      'synapse_server_name_info{server_name="example.org"} 1',
    ]);
  });

  it('gives the same metric for the same name, and keeps servers apart', async () => {
    const [one, two] = [new Metrics('one'), new Metrics('two')];
    one.counter('synapse_storage_events_persisted_events').inc({});
    one.counter('synapse_storage_events_persisted_events').inc({});
    two.counter('synapse_storage_events_persisted_events').inc({}, 5);
    expect(await linesOf(one, 'synapse_storage_events_persisted_events')).toEqual([
      'synapse_storage_events_persisted_events_total{server_name="one"} 2',
    ]);
    expect(await linesOf(two, 'synapse_storage_events_persisted_events')).toEqual([
      'synapse_storage_events_persisted_events_total{server_name="two"} 5',
    ]);
  });

  it('takes metrics of our own, and asks for those that are cheaper to read than to keep', async () => {
    const metrics = new Metrics('example.org');
    metrics
      .counter({ name: 'rookery_module_calls', help: 'Calls.', labels: ['module'] })
      .inc({ module: 'word-filter' });
    let asked = 0;
    metrics.gauge({ name: 'rookery_queue_size', help: 'Entries.' }, async (gauge) => gauge.set({}, ++asked));
    expect(await linesOf(metrics, 'rookery_module_calls')).toEqual([
      'rookery_module_calls_total{module="word-filter",server_name="example.org"} 1',
    ]);
    expect(await linesOf(metrics, 'rookery_queue_size')).toEqual(['rookery_queue_size{server_name="example.org"} 2']);
    expect(await linesOf(metrics, 'rookery_queue_size')).toEqual(['rookery_queue_size{server_name="example.org"} 3']);
  });

  it('follows what somebody else counts', async () => {
    const metrics = new Metrics('example.org');
    let total = 2;
    metrics.counter('synapse_handler_presence_get_updates').follow({ type: 'full' }, () => total);
    const shown = (): Promise<string[]> => linesOf(metrics, 'synapse_handler_presence_get_updates_total{type="full"');
    expect((await shown())[0]).toMatch(/ 2$/);
    total = 5;
    expect((await shown())[0]).toMatch(/ 5$/);
  });

  it('shows the process once, without a server name', async () => {
    const [first] = await linesOf(new Metrics('example.org'), 'process_resident_memory_bytes');
    expect(first).toMatch(/^process_resident_memory_bytes \d+/);
    expect(await linesOf(new Metrics('other.org'), 'process_cpu_user_seconds_total')).toHaveLength(1);
  });

  it.each(['process_cpu_seconds_total', 'process_cpu_user_seconds_total', 'process_cpu_system_seconds_total'])(
    'says that %s only grows, as its name does',
    async (name) => {
      const lines = await linesOf(new Metrics('example.org'), `# TYPE ${name} `);
      expect(lines).toEqual([`# TYPE ${name} counter`]);
    },
  );

  it('shows the build, the pauses of the garbage collector and of the event loop', async () => {
    const metrics = new Metrics('example.org', '1.2.3');
    expect((await linesOf(metrics, 'synapse_build_info'))[0]).toContain('version="1.2.3"');
    const until = performance.now() + 150;
    while (performance.now() < until);
    await new Promise((resolve) => setTimeout(resolve, 120));
    const [sum = ''] = await linesOf(metrics, 'python_twisted_reactor_tick_time_sum');
    expect(Number(sum.split(' ')[1])).toBeGreaterThan(0.03);
    expect((await metrics.render()).body).toContain('# TYPE python_gc_time histogram');
  });

  it('can define every metric of the table', async () => {
    const metrics = new Metrics('example.org');
    for (const [name, row] of Object.entries(metricTable)) {
      expect(name).toMatch(/^synapse_[a-z0-9_]+$/);
      expect(() => (metrics[row.kind] as (name: string) => unknown).call(metrics, name)).not.toThrow();
    }
    const { contentType, body } = await metrics.render();
    expect(contentType).toContain('text/plain');
    const helps = body.split('\n').filter((line) => line.startsWith('# HELP'));
    expect(new Set(helps.map((line) => line.split(' ')[2])).size).toBe(helps.length);
  });
});
