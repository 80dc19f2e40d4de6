import { eventually } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

describe.each(['sqlite', 'postgres'] as const)('what a module keeps (%s)', (kind) => {
  let server: ProbeServer;
  beforeAll(async () => {
    server = await startProbe(kind);
  });
  afterAll(() => server?.stop());
  beforeEach(() => probe.reset());

  const value = async (path: string, ...args: unknown[]): Promise<unknown> => {
    const called = await server.call(path, ...args);
    expect(called).toMatchObject({ status: 200 });
    return called.result;
  };

  it('documents are put, found, listed in the order of bytes, and deleted', async () => {
    expect(await value('store.get', 'nothing')).toBeNull();
    for (const key of ['a/2', 'a/10', 'a/ä', 'a/Z', 'b/1', 'a/\u{1f600}', 'a/\uff5e']) {
      await value('store.put', key, { key });
    }
    await value('store.put', 'a/2', { key: 'again' });
    expect(await value('store.get', 'a/2')).toEqual({ key: 'again' });
    const listed = (await value('store.list', { prefix: 'a/' })) as { key: string }[];
    expect(listed.map(({ key }) => key)).toEqual(['a/10', 'a/2', 'a/Z', 'a/ä', 'a/\uff5e', 'a/\u{1f600}']);
    const page = (await value('store.list', { prefix: 'a/', after: 'a/2', limit: 2 })) as { key: string }[];
    expect(page.map(({ key }) => key)).toEqual(['a/Z', 'a/ä']);
    expect(await value('store.delete', 'b/1')).toBe(true);
    expect(await value('store.delete', 'b/1')).toBe(false);
  });

  it('a transaction is whole or nothing', async () => {
    const { store } = probe.api!;
    await store.put('balance/a', 10);
    const failing = store.transaction(async (tx) => {
      await tx.put('balance/a', 5);
      expect(await tx.get('balance/a')).toBe(5);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await store.get('balance/a')).toBe(10);
    const transfers = Array.from({ length: 8 }, () =>
      store.transaction(async (tx) => {
        const before = (await tx.get('counter')) as number | undefined;
        await tx.put('counter', (before ?? 0) + 1);
      }),
    );
    await Promise.all(transfers);
    expect(await store.get('counter')).toBe(8);
  });

  it('a module that waits inside a transaction is cut off, and others go on', async () => {
    const { store } = probe.api!;
    const hanging = store.transaction(() => new Promise<void>(() => {}));
    const other = store.put('after', true);
    await expect(hanging).rejects.toThrow('waited for something else');
    await other;
    expect(await store.get('after')).toBe(true);
  });

  it('a transaction that never stops asking is given up, and the server goes on meanwhile', async () => {
    const { store } = probe.api!;
    let rounds = 0;
    const endless = store.transaction(async (tx) => {
      for (;;) {
        await tx.get('x');
        rounds++;
      }
    });
    const failed = expect(endless).rejects.toThrow('was given up');
    expect((await fetch(`${server.baseUrl}/_matrix/client/versions`)).status).toBe(200);
    await failed;
    expect(rounds).toBeGreaterThan(0);
    await store.put('after endless', 1);
  });

  it('many slow transactions of a module let others in between', async () => {
    const { store } = probe.api!;
    let [running, most, ended] = [0, 0, 0];
    const slow = Array.from({ length: 12 }, () =>
      store
        .transaction(async (tx) => {
          most = Math.max(most, ++running);
          await tx.get('x');
          await new Promise((resolve) => setTimeout(resolve, 300));
          running--;
        })
        .finally(() => ended++),
    );
    await store.put('between', 1);
    // One writes at a time on SQLite: whoever came last would be served last. Elsewhere connections would run out.
    if (kind === 'sqlite') expect(ended).toBeLessThan(12);
    await Promise.all(slow);
    expect(most).toBeLessThanOrEqual(4);
    await expect(store.transaction(() => store.put('inner', 1))).rejects.toThrow('pass the transaction on instead');
    await expect(store.transaction(() => store.transaction((tx) => tx.put('inner', 1)))).rejects.toThrow(
      'pass the transaction on instead',
    );
    expect(await store.get('inner')).toBeUndefined();
  });

  it('keys that the database could not tell apart, and other nonsense, are refused', async () => {
    const { store, httpClient, federation } = probe.api!;
    for (const key of ['\ud800', 'a\0', '', 'x'.repeat(256), 7 as never]) {
      await expect(store.put(key, 1)).rejects.toThrow(RangeError);
      await expect(store.get(key)).rejects.toThrow(RangeError);
      await expect(store.transaction((tx) => tx.delete(key))).rejects.toThrow(RangeError);
      if (key !== '') await expect(store.list({ after: key })).rejects.toThrow(RangeError);
    }
    await store.put('half', 'a\ud800\0b');
    expect(await store.get('half')).toBe('a\ud800\0b');
    for (const timeoutMs of [0, -1, NaN, Infinity, '5' as never]) {
      await expect(httpClient.getJson('http://192.0.2.1/', { timeoutMs })).rejects.toThrow(/^A timeout/);
      await expect(httpClient.getJson('http://192.0.2.1/', { maxSizeBytes: timeoutMs })).rejects.toThrow(/^The size/);
    }
    const federated = federation.getJson('other.example', '/_matrix/federation/v1/version');
    await expect(federated).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
  });

  it('tables are its own: made once, reached in transactions', async () => {
    const count = (name: string): Promise<number | undefined> =>
      probe.api!.runDbInteraction('count', async (tx) => {
        expect(tx.dialect).toBe(kind);
        await tx.run(
          `INSERT INTO module_probe_counters (name, count) VALUES (?, 1)
           ON CONFLICT (name) DO UPDATE SET count = module_probe_counters.count + 1`,
          [name],
        );
        const rows = await tx.query<{ count: number }>('SELECT count FROM module_probe_counters WHERE name = ?', [
          name,
        ]);
        return rows[0]?.count;
      });
    expect(await count('x')).toBe(1);
    await server.restart();
    expect(await count('x')).toBe(2);
    const sql = (statement: string): Promise<unknown> => probe.api!.runDbInteraction('x', (tx) => tx.run(statement));
    for (const statement of [
      'COMMIT',
      '/* a */ ROLLBACK',
      '-- x\nBEGIN',
      'PRAGMA query_only = 1',
      'DROP TABLE users',
      '',
    ]) {
      await expect(sql(statement)).rejects.toThrow('A statement begins with one of');
    }
    await expect(sql('SELECT 1; COMMIT')).rejects.toThrow();
    expect(await probe.api!.store.get('after')).toBe(true);
  });

  it('a stored call runs, once, and its successor replaces it', async () => {
    const { scheduler, getCurrentTimeMsec } = probe.api!;
    await scheduler.runAt('note', getCurrentTimeMsec(), { n: 1 });
    await scheduler.runAt('note', getCurrentTimeMsec() + 5_000, { n: 2 }, 'key');
    await scheduler.runAt('note', getCurrentTimeMsec() + 200, { n: 3 }, 'key');
    await scheduler.runAt('note', getCurrentTimeMsec() + 5_000, { n: 4 }, 'off');
    expect(await scheduler.cancel('note', 'off')).toBe(true);
    expect(await scheduler.cancel('note', 'off')).toBe(false);
    await eventually(() => (probe.jobs.length === 2 ? true : undefined));
    await new Promise((resolve) => setTimeout(resolve, 5_500));
    expect(probe.jobs).toEqual([{ n: 1 }, { n: 3 }]);
  });

  it('a stored call survives a restart', async () => {
    const { scheduler, getCurrentTimeMsec } = probe.api!;
    await scheduler.runAt('note', getCurrentTimeMsec() + 1_000, 'later');
    await server.restart();
    await eventually(() => (probe.jobs.length > 0 ? true : undefined));
    expect(probe.jobs).toEqual(['later']);
  });
});
