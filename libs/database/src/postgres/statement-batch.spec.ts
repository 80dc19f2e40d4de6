import { ColumnTypes } from './column-types.js';
import { type Connection, PostgresStatements } from './postgres-statements.js';
import { type NamedStatement, StatementBatch } from './statement-batch.js';
import { StatementNames } from './statement-names.js';

/** A connection as the driver has it, that only notes what is written. */
class Wire {
  readonly written: string[] = [];
  readonly stream = {
    writable: true,
    write: (bytes: Buffer): boolean => this.written.push(bytes.toString('latin1')) > 0,
  };
  readonly parsedStatements: Record<string, string> = {};
  readonly submittedNamedStatements: Record<string, string> = {};
}

const named = (name: string | undefined, text: string): NamedStatement => ({ name, text, values: [] });

describe('StatementBatch', () => {
  let wire: Wire;
  const outcomes: (Error | null)[] = [];
  const submit = (...statements: NamedStatement[]): StatementBatch => {
    const batch = new StatementBatch(statements, (error) => outcomes.push(error));
    batch.submit(wire);
    return batch;
  };
  beforeEach(() => {
    wire = new Wire();
    outcomes.length = 0;
  });

  it('has the server keep a named statement once, and says what it did last', () => {
    const batch = submit(named('one', 'SELECT 1'), named(undefined, 'SELECT 2'), named('one', 'SELECT 1'));
    expect(wire.written).toHaveLength(1);
    expect(wire.written[0]!.split('SELECT 1')).toHaveLength(2);
    expect(wire.submittedNamedStatements).toEqual({ one: 'SELECT 1' });
    for (const text of ['SELECT 1', 'INSERT 0 1', 'COMMIT']) batch.handleCommandComplete({ text });
    expect(outcomes).toEqual([]);
    batch.handleReadyForQuery(wire);
    expect(outcomes).toEqual([null]);
    expect([batch.command, batch.leavesNamesUnclear]).toEqual(['COMMIT', false]);
    expect(wire.parsedStatements).toEqual({ one: 'SELECT 1' });
    expect(wire.submittedNamedStatements).toEqual({});
    submit(named('one', 'SELECT 1'), named('two', 'SELECT 3'));
    expect(wire.written[1]).not.toContain('SELECT 1');
    expect(wire.written[1]).toContain('SELECT 3');
  });

  it('takes no statement as kept after an error, and tells that nobody knows', () => {
    const error = new Error('no');
    const first = submit(named('old', 'SELECT 1'));
    first.handleReadyForQuery(wire);
    const batch = submit(named('old', 'SELECT 1'), named('new', 'SELECT 2'));
    batch.handleError(error, wire);
    expect(outcomes).toEqual([null, error]);
    expect(batch.leavesNamesUnclear).toBe(true);
    expect(wire.submittedNamedStatements).toEqual({});
    expect(wire.parsedStatements).toEqual({ old: 'SELECT 1' });
    // What was kept before is known all the same.
    const known = submit(named('old', 'SELECT 1'));
    known.handleError(error, wire);
    expect(known.leavesNamesUnclear).toBe(false);
  });

  it('writes nothing on a connection that is gone', () => {
    wire.stream.writable = false;
    submit(named(undefined, 'SELECT 1'));
    expect(wire.written).toEqual([]);
  });
});

describe('PostgresStatements', () => {
  it('holds back so many statements and no more', async () => {
    const batches: StatementBatch[] = [];
    const connection = { query: (batch: StatementBatch) => batches.push(batch) } as unknown as Connection;
    const statements = new PostgresStatements(connection, new StatementNames(), new ColumnTypes(), ['BEGIN']);
    for (let n = 0; n < 62; n++) await statements.exec('SELECT 1');
    expect([batches.length, statements.hasSent]).toEqual([0, false]);
    await statements.exec('SELECT 1');
    expect([batches.length, statements.hasSent]).toEqual([1, true]);
    for (let n = 0; n < 63; n++) await statements.exec('SELECT 1');
    expect(batches).toHaveLength(1);
    // What failed meanwhile is told with the next statement, the first failure before all others.
    batches[0]!.callback(new Error('first'));
    await expect(statements.exec('SELECT 1')).rejects.toThrow('first');
    await expect(statements.commit(1_000)).rejects.toThrow('first');
    expect(batches).toHaveLength(1);
  });
});
