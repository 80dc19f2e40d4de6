import { connect, createServer, type Server, type Socket } from 'node:net';
import { openTestDatabase, RecordingLogger, type TestDatabase, testPostgresUrl } from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import { type Database, openDatabase, type Tx } from '../index.js';

/** What is done with a connection once a message of the client has come by. */
type Fault = 'cut before' | 'cut behind' | 'cut after the answer';

/** A line to PostgreSQL that can be cut. Looks at what clients say, not at what the server answers. */
class Line {
  readonly #server: Server;
  #fault: { readonly fault: Fault; readonly text: string } | undefined;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(): Promise<Line> {
    const server = createServer();
    const line = new Line(server);
    const { hostname, port } = new URL(testPostgresUrl());
    server.on('connection', (client) => {
      const far = connect(Number(port), hostname);
      client.on('error', () => {}).on('close', () => far.destroy());
      far.on('error', () => {}).on('close', () => client.destroy());
      far.on('data', (chunk) => client.write(chunk));
      client.on('data', (chunk) => line.#pass(chunk, client, far));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return line;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Once: the next message with this text meets with the fault. */
  breakAt(text: string, fault: Fault): void {
    this.#fault = { text, fault };
  }

  close(): void {
    this.#server.close();
  }

  #pass(chunk: Buffer, client: Socket, far: Socket): void {
    const at = this.#fault ? chunk.indexOf(this.#fault.text) : -1;
    if (!this.#fault || at < 0) return void far.write(chunk);
    const { fault } = this.#fault;
    this.#fault = undefined;
    if (fault === 'cut before') {
      // What lies before the text in the same packet arrives, cut anywhere.
      far.write(chunk.subarray(0, at), () => client.destroy());
    } else if (fault === 'cut behind') {
      far.removeAllListeners('data');
      client.removeAllListeners('close');
      client.destroy();
      far.write(chunk);
      // The server does its work before it hears that nobody listens any more.
      setTimeout(() => far.destroy(), 100);
    } else {
      far.removeAllListeners('data');
      far.write(chunk);
      far.once('data', () => client.destroy());
    }
  }
}

describe('a line to PostgreSQL that breaks', () => {
  let test: TestDatabase;
  let line: Line;
  let db: Database;
  let logger: RecordingLogger;
  const rejections: unknown[] = [];
  const onRejection = (reason: unknown): void => void rejections.push(reason);

  beforeAll(async () => {
    process.on('unhandledRejection', onRejection);
    test = await openTestDatabase('postgres');
    await test.database.write((tx) => tx.run('CREATE TABLE things (id BIGINT PRIMARY KEY, n INTEGER NOT NULL)'));
  });
  afterAll(async () => {
    await test.close();
    process.off('unhandledRejection', onRejection);
    expect(rejections).toEqual([]);
  });
  beforeEach(async () => {
    logger = new RecordingLogger();
    line = await Line.open();
    await test.database.write((tx) => tx.run('TRUNCATE things'));
    const { options } = test;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    const args = { ...options.args, host: '127.0.0.1', port: line.port, cp_min: 0, cp_max: 2 };
    db = await openDatabase({ ...options, args }, new SystemClock(), logger);
  });
  afterEach(async () => {
    // Every connection that went back to the pool works and is in no transaction of somebody else.
    for (let n = 0; n < 4; n++) {
      const row = await db.get<{ mode: string }>("SELECT current_setting('transaction_read_only') AS mode");
      expect(row).toEqual({ mode: 'on' });
    }
    await db.close();
    line.close();
  });

  const ids = async (): Promise<number[]> =>
    (await test.database.query<{ id: number }>('SELECT id FROM things ORDER BY id')).map((row) => row.id);
  const insert = (tx: Tx, id: number): Promise<void> => tx.exec('INSERT INTO things (id, n) VALUES (?, 0)', [id]);
  const isThere = (id: number) => async (reader: { get: Database['get'] }) =>
    (await reader.get('SELECT id FROM things WHERE id = ?', [id])) !== undefined;
  const faults: readonly Fault[] = ['cut before', 'cut behind', 'cut after the answer'];
  /** Statements, some awaited, some not, and where the line may break among them. */
  const works: readonly (readonly [name: string, work: (tx: Tx) => Promise<unknown>, places: readonly string[]])[] = [
    [
      'sends without waiting',
      async (tx) => {
        await insert(tx, 1);
        await tx.exec('INSERT INTO things (id, n) SELECT 2, 0');
      },
      ['BEGIN', 'VALUES', 'SELECT 2', 'COMMIT'],
    ],
    [
      'waits in between',
      async (tx) => {
        await insert(tx, 1);
        await tx.get('SELECT n FROM things WHERE id = 1');
        await tx.exec('INSERT INTO things (id, n) SELECT 2, 0');
        await tx.run('UPDATE things SET n = 5');
      },
      ['BEGIN', 'VALUES', 'SELECT n', 'SELECT 2', 'UPDATE', 'COMMIT'],
    ],
  ];

  for (const [name, work, places] of works) {
    for (const place of places) {
      it.each(faults)(`does a transaction once that ${name}, ${place}: %s`, async (fault) => {
        await db.query('SELECT 1');
        line.breakAt(place, fault);
        let committed = 0;
        await db.write(
          async (tx) => {
            tx.afterCommit(() => committed++);
            await work(tx);
          },
          { happened: isThere(1) },
        );
        expect(await ids()).toEqual([1, 2]);
        expect(committed).toBe(1);
      });
    }
  }

  it('tells the caller of a commit about which nobody can be asked', async () => {
    let committed = 0;
    let rolledBack = 0;
    line.breakAt('COMMIT', 'cut behind');
    const work = async (tx: Tx): Promise<void> => {
      tx.afterCommit(() => committed++);
      tx.afterRollback(() => rolledBack++);
      await insert(tx, 1);
    };
    await expect(db.write(work)).rejects.toThrow(/Connection terminated|ECONNRESET/);
    expect([committed, rolledBack]).toEqual([0, 1]);
  });

  it('asks only once the far end has stopped', async () => {
    // The commit hangs at a trigger until after the line is cut.
    await test.database.write(async (tx) => {
      await tx.run(`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(CASE WHEN NEW.n = 7 THEN 30 ELSE 0 END); RETURN NULL; END $$`);
      await tx.run(`CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON things DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION hang()`);
    });
    line.breakAt('COMMIT', 'cut behind');
    let runs = 0;
    await db.write((tx) => tx.exec('INSERT INTO things (id, n) VALUES (1, ?)', [runs++ === 0 ? 7 : 0]), {
      happened: isThere(1),
    });
    expect(runs).toBe(2);
    expect(await ids()).toEqual([1]);
    const left = await test.database.query(
      "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COMMIT%' AND state = 'active'",
    );
    expect(left).toEqual([]);
    await test.database.write((tx) => tx.run('DROP FUNCTION hang CASCADE'));
  });

  it('keeps nothing when the function throws behind what it did not wait for', async () => {
    const thrown = new Error('mine');
    await expect(
      db.write(async (tx) => {
        await insert(tx, 1);
        await insert(tx, 1);
        throw thrown;
      }),
    ).rejects.toBe(thrown);
    line.breakAt('VALUES', 'cut behind');
    await expect(
      db.write(async (tx) => {
        await insert(tx, 1);
        throw thrown;
      }),
    ).rejects.toBe(thrown);
    expect(await ids()).toEqual([]);
  });

  it('closes the connection of a transaction that took too long, whatever it has on its way', async () => {
    const beganMs = performance.now();
    await expect(
      db.write(
        async (tx) => {
          await insert(tx, 1);
          await tx.exec('SELECT pg_sleep(20)');
          await tx.get('SELECT 1');
        },
        { limitMs: 200 },
      ),
    ).rejects.toThrow(/given up|statement timeout/);
    expect(performance.now() - beganMs).toBeLessThan(5_000);
    expect(await ids()).toEqual([]);
  });
});
