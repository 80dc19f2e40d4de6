import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '@rookery/database';
import { migrations, stateMigrations } from '@rookery/homeserver';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { stringify } from 'yaml';
import { rookery, sectionFor, settingsFor } from './fixtures/rookery.fixture.js';

eachDatabase('rookery upgrade check', (open, kind) => {
  let test: TestDatabase;
  let folder: string;
  let file: string;
  beforeEach(async () => {
    test = await open();
    folder = mkdtempSync(join(tmpdir(), 'rookery-upgrade-'));
    file = join(folder, 'homeserver.yaml');
    writeFileSync(file, settingsFor(test.options));
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    await test.close();
  });
  const check = (...more: string[]): ReturnType<typeof rookery> => rookery(['upgrade', 'check', '-c', file, ...more]);

  it('says what an older database is in for, and changes nothing', async () => {
    const later = new Set(['rooms_14_state_rows', 'rooms_15_member_deltas', 'push_05_notes', 'push_06_groups']);
    await migrate(
      test.database,
      migrations.filter(({ name }) => !later.has(name)),
    );
    const count = 300;
    await test.database.write((tx) =>
      tx.insertMany(
        'current_state_delta_stream',
        ['stream_id', 'room_id', 'type', 'state_key'],
        Array.from({ length: count }, (_, i) => [i, '!r:a', 'm.room.member', `@u${i}:a`]),
      ),
    );
    const before = await test.database.query('SELECT * FROM applied_schema_deltas');
    const { code, out } = await check();
    expect(code).toBe(0);
    expect(out).toContain('Schema version 1, some steps are missing.');
    expect(out).toMatch(/^4 steps before the server answers, about less than a second:$/m);
    expect(out).toContain(`  rooms_15_member_deltas: ${count} rows, less than a second`);
    expect(out).toMatch(/rooms_14_state_rows: .*/);
    expect(out.includes('KiB of disk meanwhile')).toBe(kind === 'sqlite');
    expect(/^Of disk .* are needed meanwhile, and .* free\.$/m.test(out)).toBe(kind === 'sqlite');
    expect(out).toMatch(/Cannot be undone, so make a backup first/);
    expect(out).toContain('in the background: push_notes');
    expect(await test.database.query('SELECT * FROM applied_schema_deltas')).toEqual(before);
    const told = JSON.parse((await check('--json')).out) as { steps: { name: string; rows: number }[] };
    expect(told.steps.map((step) => step.name)).toEqual(
      migrations.map(({ name }) => name).filter((name) => later.has(name)),
    );
    await migrate(test.database, migrations);
    expect((await check()).out).toContain('Schema version 1: nothing to do.');
  });

  it('tells programs, too, that the settings would not do', async () => {
    writeFileSync(file, 'server_name: example.org\nreport_stats: perhaps\n');
    const { code, out } = await check('--json');
    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({ settings: [expect.stringContaining('report_stats')] });
  });

  it('looks at the disk with the database of state as well', async () => {
    await migrate(test.database, migrations);
    const apart = await open();
    await migrate(apart.database, stateMigrations);
    const databases = {
      master: { ...sectionFor(test.options), data_stores: ['main'] },
      state: { ...sectionFor(apart.options), data_stores: ['state'] },
    };
    writeFileSync(file, stringify({ server_name: 'example.org', report_stats: false, databases }));
    const { code, out, notes } = await check('--json');
    expect({ code, notes }).toEqual({ code: 0, notes: '' });
    const { state } = JSON.parse(out) as { state: { steps: unknown[]; freeBytes?: number } };
    expect([state.steps, typeof state.freeBytes]).toEqual([[], kind === 'sqlite' ? 'number' : 'undefined']);
    await apart.close();
  });

  it('fails where a start would', async () => {
    await migrate(test.database, [...migrations, { version: 9, name: 'from_the_future', up: async () => {} }]);
    const refused = await check();
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.notes).toMatch(/^The database has schema version 9, made by a newer Rookery/);
    writeFileSync(file, `${settingsFor(test.options)}log_file: x\n`);
    expect(await check()).toMatchObject({ code: 1, notes: 'This version would not start with these settings.' });
  });
});

describe('rookery upgrade check', () => {
  it('makes no database', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-upgrade-'));
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(file, settingsFor({ name: 'sqlite3', path: join(folder, 'none', 'homeserver.db') }));
    const { code, out } = await rookery(['upgrade', 'check', '-c', file]);
    expect([code, out]).toEqual([0, expect.stringContaining('There is no database yet')]);
    expect(readdirSync(folder)).toEqual(['homeserver.yaml']);
    rmSync(folder, { recursive: true, force: true });
  });
});
