import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { claimDatabase, type Migration, migrate, type PostgresOptions } from '@rookery/database';
import { migrations } from '@rookery/homeserver';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { rookery, settingsFor } from './fixtures/rookery.fixture.js';

/** Tables as the other server's release 1.26 leaves them, as far as its way back touches them. */
const of126 = [
  "CREATE TABLE schema_version (lock CHAR(1) DEFAULT 'X' NOT NULL UNIQUE, version INTEGER NOT NULL, upgraded BOOL NOT NULL)",
  'CREATE TABLE applied_schema_deltas (version INTEGER NOT NULL, file TEXT NOT NULL, UNIQUE (version, file))',
  'INSERT INTO schema_version (version, upgraded) VALUES (59, TRUE)',
  `INSERT INTO applied_schema_deltas VALUES (58, '58/28rejected_events_metadata.sql'), (59, '59/01ignored_user.py'),
     (59, '59/02shard_send_to_device.sql'), (59, '59/06chain_cover_index.sql'), (59, '59/07shard_account_data_fix.sql')`,
  'CREATE TABLE ignored_users (ignorer_user_id TEXT NOT NULL, ignored_user_id TEXT NOT NULL)',
  "INSERT INTO ignored_users VALUES ('@a:x', '@b:x')",
  'CREATE TABLE rooms (room_id TEXT PRIMARY KEY NOT NULL, has_auth_chain_index BOOLEAN)',
  "INSERT INTO rooms VALUES ('!a:x', TRUE), ('!b:x', NULL), ('!c:x', FALSE)",
  'CREATE TABLE event_auth_chains (event_id TEXT PRIMARY KEY, chain_id BIGINT NOT NULL, sequence_number BIGINT NOT NULL)',
  "INSERT INTO event_auth_chains VALUES ('$a', 1, 1), ('$b', 1, 2)",
  `CREATE TABLE event_auth_chain_links (origin_chain_id BIGINT NOT NULL, origin_sequence_number BIGINT NOT NULL,
     target_chain_id BIGINT NOT NULL, target_sequence_number BIGINT NOT NULL)`,
  'INSERT INTO event_auth_chain_links VALUES (1, 1, 2, 1)',
];

eachDatabase('rookery rollback', (open, kind) => {
  let test: TestDatabase;
  let folder: string;
  let file: string;
  beforeEach(async () => {
    test = await open();
    folder = mkdtempSync(join(tmpdir(), 'rookery-rollback-'));
    file = join(folder, 'homeserver.yaml');
    writeFileSync(file, settingsFor(test.options, { pid_file: join(folder, 'server.pid') }));
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    await test.close();
  });
  const run = (statements: readonly string[]): Promise<void> =>
    test.database.write(async (tx) => {
      for (const statement of statements) await tx.run(statement);
    });
  const version = async (): Promise<unknown> =>
    (await test.database.get<{ version: number }>('SELECT version FROM schema_version'))?.version;
  const command = (...args: string[]): ReturnType<typeof rookery> => rookery(['rollback', ...args, '-c', file]);

  it('goes back from 1.26.0 to 1.25.0', async () => {
    await run(of126);
    const plan = await command('plan', '--to', '1.25.0');
    expect(plan).toMatchObject({ code: 0, notes: '' });
    expect(plan.out).toContain('set schema_version to 58');
    expect(plan.out).toContain('event_auth_chains: 2 rows');
    expect(await version()).toBe(59);
    expect(await rookery(['rollback', 'apply', '1.26.0', '-c', file], ['no'])).toMatchObject({
      code: 1,
      notes: 'Nothing was changed.',
    });
    expect(await version()).toBe(59);
    expect(await rookery(['rollback', 'apply', '1.26.0', '-c', file], ['yes'])).toMatchObject({ code: 0 });
    expect(await version()).toBe(58);
    await expect(test.database.query('SELECT * FROM ignored_users')).rejects.toThrow();
    const rooms = await test.database.query<{ indexed: unknown }>('SELECT has_auth_chain_index AS indexed FROM rooms');
    expect(rooms.map(({ indexed }) => Number(indexed))).toEqual([0, 0, 0]);
    expect(await test.database.query('SELECT * FROM event_auth_chains')).toEqual([]);
    expect(await test.database.query('SELECT * FROM event_auth_chain_links')).toEqual([]);
    expect(await test.database.query('SELECT file FROM applied_schema_deltas ORDER BY file')).toEqual([
      { file: '58/28rejected_events_metadata.sql' },
      { file: '59/02shard_send_to_device.sql' },
      { file: '59/07shard_account_data_fix.sql' },
    ]);
    expect(await command('plan', '1.26.0')).toMatchObject({
      code: 1,
      notes: expect.stringContaining('schema version 58 already'),
    });
  });

  it('goes back although ignored_users is not there', async () => {
    await run([...of126, 'DROP TABLE ignored_users']);
    expect(await command('apply', '1.26.0', '--yes')).toMatchObject({ code: 0 });
    expect(await version()).toBe(58);
  });

  it('changes nothing when a step fails', async () => {
    await run([...of126, 'DROP TABLE event_auth_chain_links', 'CREATE TABLE event_auth_chain_links (x BIGINT)']);
    await run(['ALTER TABLE event_auth_chains RENAME TO elsewhere']);
    await expect(command('apply', '1.26.0', '--yes')).rejects.toThrow();
    expect(await version()).toBe(59);
    expect(await test.database.query('SELECT * FROM ignored_users')).toHaveLength(1);
  });

  it('goes back from 1.13.0 to 1.12.4', async () => {
    await run([
      ...of126,
      'UPDATE schema_version SET version = 58',
      'DELETE FROM applied_schema_deltas WHERE version = 59',
    ]);
    expect(await command('apply', '--to', '1.12.4', '--yes')).toMatchObject({ code: 0 });
    expect(await version()).toBe(57);
    expect(await test.database.query('SELECT * FROM ignored_users')).toHaveLength(1);
  });

  it('says so before it touches what cannot be gone back', async () => {
    await run([...of126, 'UPDATE schema_version SET version = 72']);
    const refused = await command('apply', '1.26.0', '--yes');
    expect(refused).toMatchObject({ code: 1, notes: expect.stringContaining('there is no way back from there') });
    expect(await version()).toBe(72);
    expect(await command('plan', '--to', '1.100.0')).toMatchObject({
      code: 1,
      notes: expect.stringContaining('Known are: 1.26.0 to 1.25.0'),
    });
    expect(await command('plan', '--to', 'rookery-0.1.0')).toMatchObject({
      code: 1,
      notes: expect.stringContaining('belongs to another homeserver'),
    });
    expect(await command('plan')).toMatchObject({ code: 2 });
  });

  it('leaves a database alone that a server uses', async () => {
    await run(of126);
    const claim = await claimDatabase(test.options);
    expect(await command('apply', '1.26.0', '--yes')).toMatchObject({
      code: 1,
      notes: expect.stringContaining('Another server runs'),
    });
    await claim.release();
    writeFileSync(join(folder, 'server.pid'), `${process.pid}\n`);
    expect(await command('apply', '1.26.0', '--yes')).toMatchObject({
      code: 1,
      notes: expect.stringContaining(`process ${process.pid}`),
    });
    rmSync(join(folder, 'server.pid'));
    if (kind === 'postgres') {
      const { url, args } = test.options as PostgresOptions;
      const place = new URL(url ?? '');
      place.pathname = `/${String(args?.['dbname'])}`;
      const other = new pg.Client({ connectionString: place.href, application_name: 'homeserver' });
      await other.connect();
      expect(await command('apply', '1.26.0', '--yes')).toMatchObject({
        code: 1,
        notes: expect.stringContaining('homeserver: 1'),
      });
      await other.end();
    }
    expect(await version()).toBe(59);
  });

  it("goes back to one of Rookery's own releases, or says what stands in the way", async () => {
    await migrate(test.database, migrations);
    expect(await command('plan', '--to', '0.1.0')).toMatchObject({
      code: 0,
      out: expect.stringContaining('can serve as it is: nothing to undo'),
    });
    expect(await command('plan', '1.26.0')).toMatchObject({
      code: 1,
      notes: expect.stringContaining("one of Rookery's"),
    });
    const harmless: Migration = { version: 2, name: 'of_another_build', servedFrom: 1, up: async () => {} };
    await migrate(test.database, [...migrations, harmless]);
    const done = await command('apply', '--to', 'rookery-0.1.0', '--yes');
    expect(done).toMatchObject({ code: 0, out: expect.stringContaining('synctl start') });
    await migrate(test.database, [...migrations, harmless, { version: 3, name: 'breaking', up: async () => {} }]);
    const refused = await command('plan', '--to', 'rookery-0.1.0');
    expect(refused).toMatchObject({ code: 1, notes: expect.stringContaining('made by a newer Rookery') });
  });
});

describe('rookery rollback', () => {
  let folder: string;
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'rookery-rollback-'))));
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it.each([
    ['nothing of it', 'server_name: x # here\n', 'server_name: x # here\nstats:\n  enabled: false\n'],
    [
      'it is true',
      'stats:\n  # of rooms\n  enabled: true # yes\na: 1\n',
      'stats:\n  # of rooms\n  enabled: false # yes\na: 1\n',
    ],
    ['a section without it', 'stats:\n    other: 1\na: 1\n', 'stats:\n    enabled: false\n    other: 1\na: 1\n'],
    ['a section in a line', 'stats: {other: 1}\n', 'stats: {enabled: false, other: 1}\n'],
    ['it is false', 'stats: {enabled: no}\n', 'stats: {enabled: no}\n'],
  ])('goes back from 1.4.0 to 1.3.1 by a setting (%s)', async (_, before, after) => {
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(file, before);
    const plan = await rookery(['rollback', 'plan', '--to', '1.3.1', '-c', file]);
    expect(plan).toMatchObject({ code: 0, out: expect.stringContaining('stats.enabled to false') });
    expect(readFileSync(file, 'utf8')).toBe(before);
    const done = await rookery(['rollback', 'apply', '1.4.0', '--yes', '-c', file]);
    expect(done).toMatchObject({
      code: 0,
      out: expect.stringContaining('When you upgrade again, set stats.enabled to true.'),
    });
    expect(readFileSync(file, 'utf8')).toBe(after);
  });

  it('leaves a file alone that it does not understand', async () => {
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(file, 'stats: &a\na: *a\n');
    expect(await rookery(['rollback', 'apply', '1.4.0', '--yes', '-c', file])).toMatchObject({
      code: 1,
      notes: expect.stringContaining('by hand'),
    });
    expect(readFileSync(file, 'utf8')).toBe('stats: &a\na: *a\n');
  });

  it("removes what 1.32.0 has left in a metrics collector's log, and nothing else", async () => {
    const data = join(folder, 'prometheus');
    mkdirSync(join(data, 'wal', 'checkpoint.00000003'), { recursive: true });
    mkdirSync(join(data, '01BLOCK'));
    for (const path of ['wal/00000004', 'wal/00000005', 'wal/checkpoint.00000003/00000000', '01BLOCK/index'])
      writeFileSync(join(data, path), 'x'.repeat(2000));
    const args = ['1.32.0', '--collector-data', data];
    const plan = await rookery(['rollback', 'plan', ...args]);
    expect(plan).toMatchObject({ code: 0, out: expect.stringContaining('3 parts, 5.9 KiB') });
    expect(readdirSync(join(data, 'wal'))).toHaveLength(3);
    expect(await rookery(['rollback', 'apply', '1.32.0', '--yes'])).toMatchObject({ code: 2 });
    writeFileSync(join(data, 'wal', 'letter.txt'), 'x');
    expect(await rookery(['rollback', 'apply', ...args, '--yes'])).toMatchObject({
      code: 1,
      notes: expect.stringContaining('letter.txt'),
    });
    rmSync(join(data, 'wal', 'letter.txt'));
    expect(await rookery(['rollback', 'apply', ...args, '--yes'])).toMatchObject({ code: 0 });
    expect(readdirSync(join(data, 'wal'))).toEqual([]);
    expect(readdirSync(data)).toEqual(['01BLOCK', 'wal']);
    expect(await rookery(['rollback', 'apply', '1.32.0', '--yes', '--collector-data', folder])).toMatchObject({
      code: 1,
    });
  });
});
