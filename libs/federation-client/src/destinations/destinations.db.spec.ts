import { Database, type Dialect, type SqlValue, type Tx, type WriteOptions } from '@rookery/database';
import { InProcessBus } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, FakeNames, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { makeClient, PlayedServer, type TestClient } from '../federation-client.fixture.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';

const minuteMs = 60_000;
const settings = {
  'federation.destination_min_retry_interval': '10m',
  'federation.destination_retry_multiplier': 3,
  'federation.destination_max_retry_interval': '2h',
};

/** A database whose answers can be kept back after they were read. */
class HeldReads extends Database {
  #held = 0;
  #released: Promise<void> | undefined;

  constructor(private readonly inner: Database) {
    super();
  }
  get dialect(): Dialect {
    return this.inner.dialect;
  }

  /** Begins to read; `release` gives the answers out. */
  async hold(reads: number, read: () => Promise<unknown>): Promise<{ release: () => void; reading: Promise<unknown> }> {
    let release = (): void => {};
    this.#held = 0;
    this.#released = new Promise((resolve) => (release = resolve));
    const reading = read();
    await eventually(() => this.#held >= reads);
    this.#released = undefined;
    return { release, reading };
  }
  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    const released = this.#released;
    const rows = await this.inner.query<Row>(sql, params);
    this.#held += 1;
    await released;
    return rows;
  }
  async get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return (await this.query<Row>(sql, params))[0];
  }
  write<T>(fn: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T> {
    return this.inner.write(fn, options);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }
}

eachDatabase('servers that cannot be reached', (open) => {
  let test: TestDatabase;
  let clock: FakeClock;
  const clients: TestClient[] = [];
  beforeAll(async () => {
    clock = new FakeClock();
    test = await open(clock);
    await test.migrate(federationClientMigrations);
  });
  afterAll(async () => {
    for (const client of clients) await client.close();
  });
  const client = (names = new FakeNames(), database: Database = test.database): TestClient => {
    const made = makeClient({ database, clock, names, settings });
    clients.push(made);
    return made;
  };

  it('are left alone longer each time, and not for what fails meanwhile', async () => {
    const { destinations } = client();
    const startTs = clock.nowMs();
    const pauses: number[] = [];
    for (let i = 0; i < 5; i++) {
      await Promise.all([destinations.failed('a.test'), destinations.failed('a.test'), destinations.failed('a.test')]);
      const { failingSinceTs, pauseMs, retryAtTs } = await destinations.state('a.test');
      expect(failingSinceTs).toBe(startTs);
      expect(retryAtTs).toBe(clock.nowMs() + pauseMs);
      pauses.push(pauseMs);
      await clock.advance(pauseMs - 1);
      await destinations.failed('a.test');
      expect((await destinations.state('a.test')).retryAtTs).toBe(clock.nowMs() + 1);
      await clock.advance(1);
      expect((await destinations.state('a.test')).retryAtTs).toBe(0);
    }
    expect(pauses[0]).toBe(10 * minuteMs);
    expect(pauses[1]).toBeGreaterThanOrEqual(24 * minuteMs);
    expect(pauses[1]).toBeLessThanOrEqual(42 * minuteMs);
    expect(pauses.slice(3)).toEqual([120 * minuteMs, 120 * minuteMs]);
  });

  it('are left alone after a restart, too', async () => {
    await client().destinations.failed('b.test');
    const { client: again, destinations } = client();
    const before = await destinations.state('b.test');
    expect(before).toEqual({
      failingSinceTs: clock.nowMs(),
      pauseMs: 10 * minuteMs,
      retryAtTs: clock.nowMs() + 10 * minuteMs,
    });
    await expect(again.getJson('b.test', '/_matrix/x')).rejects.toMatchObject({
      ...{ reason: 'backing_off', retryable: true, isDown: false, retryAfterMs: 10 * minuteMs },
    });
    expect(await destinations.state('b.test')).toEqual(before);
  });

  it('are welcome with their first sign of life, which is told once', async () => {
    const { destinations } = client();
    const back: string[] = [];
    const stop = destinations.onRecovery((name) => back.push(name));
    const signs: string[] = [];
    const stopSigns = destinations.onLife((name) => signs.push(name));
    await destinations.failed('c.test');
    await destinations.alive('c.test');
    await destinations.alive('c.test');
    await destinations.alive('never-failed.test');
    expect(back).toEqual(['c.test']);
    // The signs themselves are told, all of them.
    expect(signs).toEqual(['c.test', 'c.test', 'never-failed.test']);
    stopSigns();
    expect(await destinations.state('c.test')).toEqual({ failingSinceTs: undefined, retryAtTs: 0, pauseMs: 0 });
    expect(await client().destinations.state('c.test')).toEqual({
      failingSinceTs: undefined,
      retryAtTs: 0,
      pauseMs: 0,
    });
    stop();
    await destinations.failed('c.test');
    expect((await destinations.state('c.test')).pauseMs).toBe(10 * minuteMs);
    await destinations.alive('c.test');
    expect(back).toEqual(['c.test']);
    expect(signs).toHaveLength(3);
  });

  it('are known to other processes within a minute', async () => {
    const one = client().destinations;
    const other = client().destinations;
    expect((await other.state('d.test')).retryAtTs).toBe(0);
    await one.failed('d.test');
    await clock.advance(minuteMs);
    expect((await other.state('d.test')).retryAtTs).toBeGreaterThan(0);
    await one.alive('d.test');
    await clock.advance(minuteMs);
    expect((await other.state('d.test')).retryAtTs).toBe(0);
  });

  it.each(['state', 'prepare'] as const)('are known by what was noted while they were read (%s)', async (how) => {
    const reads = new HeldReads(test.database);
    const { destinations } = client(undefined, reads);
    const names = [`${how}1.test`, `${how}2.test`];
    const read = (): Promise<unknown> =>
      how === 'prepare' ? destinations.prepare(names) : Promise.all(names.map((name) => destinations.state(name)));
    const untilTs = async (): Promise<number[]> =>
      Promise.all(names.map(async (name) => (await destinations.state(name)).retryAtTs));
    const during = async (note: (name: string) => Promise<void>): Promise<void> => {
      const { release, reading } = await reads.hold(how === 'prepare' ? 1 : names.length, read);
      for (const name of names) await note(name);
      release();
      await reading;
    };
    await during((name) => destinations.failed(name));
    expect(await untilTs()).toEqual(names.map(() => clock.nowMs() + 10 * minuteMs));
    await clock.advance(minuteMs);
    await during((name) => destinations.reset(name));
    expect(await untilTs()).toEqual([0, 0]);
    // What nobody has changed meanwhile is read anew.
    await client().destinations.failed(names[0]!);
    await clock.advance(minuteMs);
    await read();
    expect(await untilTs()).toEqual([expect.any(Number), 0]);
    expect((await untilTs())[0]).toBeGreaterThan(clock.nowMs());
  });

  it('are looked up once more where another process finds them back meanwhile', async () => {
    const reads = new HeldReads(test.database);
    const bus = new InProcessBus();
    const here = makeClient({ database: reads, clock, settings, bus });
    clients.push(here);
    const there = client().destinations;
    await there.failed('f.test');
    const { release, reading } = await reads.hold(1, () => here.destinations.state('f.test'));
    await there.reset('f.test');
    bus.publish({ stream: 'caches', writer: 'there', position: 0, number: 1, changed: { destinations: ['f.test'] } });
    await Promise.resolve();
    release();
    expect(await reading).toMatchObject({ retryAtTs: 0 });
    expect(await here.destinations.state('f.test')).toMatchObject({ retryAtTs: 0 });
  });

  it('are those that show no life, not those that refuse', async () => {
    const statuses = { 200: false, 400: false, 401: false, 404: false, 429: false, 500: true, 502: true, 503: true };
    for (const [status, down] of Object.entries(statuses)) {
      const name = `s${status}.test`;
      const server = await PlayedServer.start(
        [name],
        (_, response) => void response.writeHead(Number(status)).end('{}'),
      );
      const { client: requests, destinations } = client(new FakeNames().host(`${name}:8448`, server.endpoint));
      await requests.getJson(name, '/_matrix/x', {}, { retries: 'none' }).catch(() => undefined);
      expect([status, (await destinations.state(name)).failingSinceTs !== undefined]).toEqual([status, down]);
      // Whoever must know tries all the same; an answer ends the pause.
      if (down) {
        await requests.getJson(name, '/_matrix/x', {}, { retries: 'none', ignoreBackoff: true }).catch(() => undefined);
        expect(server.seen).toHaveLength(2);
      }
      await server.stop();
    }
    const { client: requests, destinations } = client();
    await requests
      .getJson('made-up.test', '/_matrix/x', {}, { retries: 'none', ignoreBackoff: true })
      .catch(() => undefined);
    expect((await destinations.state('made-up.test')).failingSinceTs).toBeUndefined();
    await requests.getJson('nowhere.test', '/_matrix/x', {}, { retries: 'none' }).catch(() => undefined);
    expect((await destinations.state('nowhere.test')).failingSinceTs).toBe(clock.nowMs());
  });

  it('are logged when they go and when they come back', async () => {
    const logger = new RecordingLogger();
    const made = makeClient({ database: test.database, clock, settings, logger });
    clients.push(made);
    await made.destinations.failed('e.test');
    await made.destinations.alive('e.test');
    expect(logger.messages('info')).toEqual(['Another server cannot be reached', 'Another server is back']);
  });
});
