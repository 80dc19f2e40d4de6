import { Metrics } from './metrics.js';

const linesOf = async (metrics: Metrics, name: string): Promise<string[]> =>
  (await metrics.render()).body
    .split('\n')
    .filter((line) => line.startsWith(name))
    .map((line) =>
      line.replace(',server_name="x"', '').replace('server_name="x",', '').replace('{server_name="x"}', ''),
    );

describe('kept combinations of labels', () => {
  it('count like the metric that they belong to', async () => {
    const metrics = new Metrics('x');
    const times = metrics.histogram('synapse_storage_query_time');
    const select = times.child({ verb: 'SELECT' });
    for (const seconds of [0.001, 0.005, 0.3, 99]) select.observe(seconds);
    times.observe({ verb: 'SELECT' }, 0.3);
    expect(times.child({ verb: 'SELECT' })).toBe(select);
    const lines = await linesOf(metrics, 'synapse_storage_query_time');
    expect(lines).toHaveLength(14);
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/_bucket\{.*le="0.005".*\} 2$/),
        expect.stringMatching(/_bucket\{.*le="0.25".*\} 2$/),
        expect.stringMatching(/_bucket\{.*le="0.5".*\} 4$/),
        expect.stringMatching(/_bucket\{.*le="10".*\} 4$/),
        expect.stringMatching(/_bucket\{.*le="\+Inf".*\} 5$/),
        expect.stringMatching(/_count\{.*\} 5$/),
      ]),
    );
    expect(Number(lines.find((line) => line.includes('_sum'))?.split(' ')[1])).toBeCloseTo(99.606);

    const logins = metrics.counter('synapse_user_logins_total');
    const labels = { guest: 'false', auth_provider: 'password' };
    const child = logins.child(labels);
    child.inc();
    logins.inc(labels);
    expect(await linesOf(metrics, 'synapse_user_logins_total')).toEqual([expect.stringMatching(/ 2$/)]);
    child.inc(3);
    expect(await linesOf(metrics, 'synapse_user_logins_total')).toEqual([expect.stringMatching(/ 5$/)]);
    expect(await linesOf(metrics, 'synapse_user_logins_total')).toEqual([expect.stringMatching(/ 5$/)]);
  });

  it('a histogram without labels shows zero before anything was counted', async () => {
    const metrics = new Metrics('x');
    metrics.histogram('synapse_storage_schedule_time');
    expect(await linesOf(metrics, 'synapse_storage_schedule_time_count')).toEqual([expect.stringMatching(/ 0$/)]);
  });
});
