import { eventually } from '@rookery/testing';
import Sqlite from 'better-sqlite3';
import pg from 'pg';
import { type DatabasePlace, databaseKinds, ServerProcess } from '../support/server-process.js';

/** Runs statements in a server's database, and answers with the rows of the last one. */
async function inside(place: DatabasePlace, ...statements: string[]): Promise<unknown[]> {
  if ('file' in place) {
    const handle = new Sqlite(place.file);
    let rows: unknown[] = [];
    for (const statement of statements) {
      const prepared = handle.prepare(statement);
      if (prepared.reader) rows = prepared.all();
      else prepared.run();
    }
    handle.close();
    return rows;
  }
  const url = new URL(process.env['ROOKERY_TEST_POSTGRES'] ?? '');
  url.pathname = `/${place.name}`;
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  let rows: unknown[] = [];
  for (const statement of statements) rows = (await client.query(statement)).rows;
  await client.end();
  return rows;
}

describe.each(databaseKinds)('a server on restored data (%s)', (kind) => {
  let server: ServerProcess;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind);
    await server.start();
  });
  afterAll(() => server?.remove());

  it('finds doubled edges of state groups, says so, and removes them in the background', async () => {
    await server.stop();
    await inside(
      server.database,
      'CREATE TABLE restored (state_group BIGINT NOT NULL, prev_state_group BIGINT NOT NULL)',
      'INSERT INTO restored VALUES (9001, 9000), (9001, 9000), (9002, 9001)',
      'DROP TABLE state_group_edges',
      'ALTER TABLE restored RENAME TO state_group_edges',
    );
    await server.start();
    await eventually(() => server.output.includes('keeps rows of state_group_edges'));
    const queued = 'SELECT update_name FROM background_updates';
    await eventually(async () => (await inside(server.database, queued)).length === 0);
    const rows = await inside(server.database, 'SELECT state_group FROM state_group_edges ORDER BY state_group');
    expect(rows.map((row) => Number((row as { state_group: unknown }).state_group))).toEqual([9001, 9002]);
  });
});
