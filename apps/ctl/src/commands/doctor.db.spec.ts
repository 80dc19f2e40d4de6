import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { claimDatabase, migrate, tablesAmong } from '@rookery/database';
import { migrations } from '@rookery/homeserver';
import { eachDatabase, freePort, type TestDatabase } from '@rookery/testing';
import { rookery, settingsFor } from './fixtures/rookery.fixture.js';

eachDatabase('rookery doctor', (open, kind) => {
  let test: TestDatabase;
  let folder: string;
  let file: string;
  beforeEach(async () => {
    test = await open();
    folder = mkdtempSync(join(tmpdir(), 'rookery-doctor-'));
    file = join(folder, 'homeserver.yaml');
    writeFileSync(file, settingsFor(test.options, { media_store_path: join(folder, 'media') }));
    await migrate(test.database, migrations);
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    await test.close();
  });
  const doctor = (...more: string[]): ReturnType<typeof rookery> =>
    rookery(['doctor', '--offline', '-c', file, ...more]);

  it('finds nothing wrong where nothing is', async () => {
    const { code, out } = await doctor();
    expect({ code, wrong: out.match(/^WRONG.*$/gm) }).toEqual({ code: 0, wrong: null });
    for (const name of ['settings', 'database', 'disk', 'certificates', 'proxy', 'modules'])
      expect(out).toMatch(new RegExp(`^ok {6}${name}: `, 'm'));
    expect(out).not.toContain('federation:');
  });

  it('finds a sequence that stands too low, and sets it right while no server runs', async () => {
    await test.database.write((tx) =>
      tx.run("INSERT INTO application_services_txns (as_id, txn_id, event_ids) VALUES ('irc', 41, '[]')"),
    );
    const wrong = await doctor();
    expect(wrong).toMatchObject({ code: 1, notes: expect.stringMatching(/^Wrong: 1;/) });
    expect(wrong.out).toMatch(/^WRONG {3}database: the sequence application_services_txn_id_seq stands at 0, .* 41$/m);
    const claim = await claimDatabase(test.options);
    await expect(doctor('--repair')).resolves.toMatchObject({
      code: 1,
      notes: expect.stringContaining('Another server'),
    });
    await claim.release();
    const mended = await doctor('--repair');
    expect(mended).toMatchObject({ code: 0, out: expect.stringContaining('stands at 41 now') });
    if (kind === 'postgres')
      expect(
        await test.database.write((tx) => tx.get("SELECT nextval('application_services_txn_id_seq') AS id")),
      ).toEqual({ id: 42 });
    expect((await doctor('--repair')).out).toContain('there was nothing to repair');
  });

  it('finds statistics that are not what they count, and has them counted anew', async () => {
    await test.database.write(async (tx) => {
      await tx.run(
        "INSERT INTO rooms (room_id, room_version, is_public) VALUES ('!a:b', '11', FALSE), ('!c:d', '11', FALSE)",
      );
      const row = "('$a', '!a:b', 'm.room.member', '@a:b', 'join')";
      await tx.run(`INSERT INTO current_state_events (event_id, room_id, type, state_key, membership) VALUES ${row}`);
      await tx.run(
        `INSERT INTO local_current_membership (room_id, user_id, event_id, membership, event_stream_ordering, forgotten)
         VALUES ('!a:b', '@a:b', '$a', 'join', 1, 0)`,
      );
      await tx.run("INSERT INTO users (name, creation_ts) VALUES ('@a:b', 1)");
    });
    const wrong = await doctor();
    expect(wrong).toMatchObject({ code: 1, notes: expect.stringMatching(/^Wrong: 2;/) });
    expect(wrong.out).toMatch(/^WRONG {3}statistics: the numbers of 1 room are not what they count$/m);
    expect(wrong.out).toMatch(/^WRONG {3}statistics: the numbers of 1 user are not what they count$/m);
    expect(wrong.out).toMatch(/^warning releases: 1\.13, populate_stats_process_rooms.*: 1 to do something about$/m);
    const repaired = await doctor('--repair');
    expect(repaired).toMatchObject({
      code: 0,
      out: expect.stringMatching(/1 room will be counted anew[^]*1 user will be counted anew/),
    });
    const queued = await test.database.query<{ update_name: string }>(
      'SELECT update_name FROM background_updates ORDER BY update_name',
    );
    expect(queued.map((row) => row.update_name)).toEqual([
      'populate_stats_process_rooms',
      'populate_stats_process_users',
    ]);
    expect(await doctor('--strict')).toMatchObject({ code: 1, notes: expect.stringMatching(/^To look at: /) });
    const figures = ['!a:b', 1, 1, 0, 0, 0, 0, 1];
    await test.database.write(async (tx) => {
      await tx.run(
        `INSERT INTO room_stats_current (room_id, current_state_events, joined_members, invited_members, left_members,
           banned_members, knocked_members, local_users_in_room) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
        figures,
      );
      await tx.run(
        "INSERT INTO user_stats_current (user_id, joined_rooms, completed_delta_stream_id) VALUES ('@a:b', 1, 1)",
      );
    });
    expect((await doctor()).out).toMatch(/^ok {6}statistics: rooms and users are counted right$/m);
  });

  it('looks for what the register of releases knows to be left to do', async () => {
    const { releases } = await import('../releases/index.js');
    const looks = releases.flatMap(({ changes }) => changes.flatMap(({ look }) => look ?? []));
    expect(looks.length).toBeGreaterThan(3);
    const dialect = kind === 'postgres' ? 'postgres' : 'sqlite';
    for (const { tables, sql } of looks) {
      const text = sql[dialect];
      if (text === undefined) continue;
      expect([...(await tablesAmong(test.database, tables))].sort()).toEqual([...tables].sort());
      expect(Number((await test.database.get<{ found: number }>(text))?.found)).toBe(0);
    }
    expect((await doctor()).out).toMatch(/^ok {6}releases: nothing is left to do/m);
  });

  it('finds doubled edges, steps to come, and pushers that fail', async () => {
    await test.database.write(async (tx) => {
      await tx.run('DROP TABLE state_group_edges');
      await tx.run('CREATE TABLE state_group_edges (state_group BIGINT, prev_state_group BIGINT)');
      await tx.insertMany(
        'pushers',
        [
          'id',
          'user_name',
          'profile_tag',
          'kind',
          'app_id',
          'app_display_name',
          'device_display_name',
          'pushkey',
          'ts',
          'data',
          'last_stream_ordering',
          'failing_since',
        ],
        [[1, '@a:b', '', 'http', 'a', 'a', 'a', 'k', 1, '{}', 1, 7]],
      );
    });
    const { code, out } = await doctor();
    expect(code).toBe(1);
    expect(out).toMatch(/^WRONG {3}database: rows of state_group_edges may be doubled/m);
    expect(out).toMatch(/^warning database: 1 pushers fail/m);
  });

  it('tells what is wrong with settings, certificates and proxies, and counts', async () => {
    writeFileSync(join(folder, 'no.pem'), 'x');
    writeFileSync(
      file,
      settingsFor(test.options, {
        enable_serach: true,
        media_store_path: join(folder, 'media'),
        public_baseurl: 'https://example.org/',
        tls_certificate_path: 'no.pem',
        listeners: [
          { port: 8008, type: 'http', bind_addresses: ['127.0.0.1'], resources: [{ names: ['client'] }] },
          // Nothing that a proxy passes on, and what everybody reaches.
          { port: 9090, type: 'http', bind_addresses: ['127.0.0.1'], resources: [{ names: ['metrics'] }] },
          { port: 8448, type: 'http', x_forwarded: true, resources: [{ names: ['federation'] }] },
        ],
      }),
    );
    const { code, out } = await doctor('--json');
    expect(code).toBe(1);
    const results = JSON.parse(out) as { name: string; findings: { level: string; text: string; remedy?: string }[] }[];
    const of = (name: string) => results.find((result) => result.name === name)?.findings[0];
    expect(of('settings')).toMatchObject({ level: 'warning', text: expect.stringContaining('enable_serach') });
    expect(of('certificates')).toMatchObject({ level: 'error', text: expect.stringContaining('no.pem') });
    expect(results.find(({ name }) => name === 'proxy')?.findings).toEqual([
      {
        level: 'error',
        text: expect.stringContaining('port 8008'),
        remedy: expect.stringContaining('x_forwarded: true'),
      },
      { level: 'warning', text: expect.stringContaining('port 8448'), remedy: expect.stringContaining('Bind it') },
    ]);
  });
});

describe('rookery doctor and other machines', () => {
  let folder: string;
  let server: Server;
  let greeting: string;
  let closed: number;
  const sockets: Socket[] = [];
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-doctor-'));
    closed = await freePort();
    server = createServer((socket) => {
      sockets.push(socket.on('error', () => {}));
      socket.write(`${greeting}\r\n`);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    for (const socket of sockets.splice(0)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const port = (): number => (server.address() as AddressInfo).port;

  async function doctor(smtpPort: number): Promise<Record<string, { level: string; text: string }[]>> {
    const file = join(folder, 'homeserver.yaml');
    writeFileSync(
      file,
      settingsFor(
        { name: 'sqlite3', path: join(folder, 'homeserver.db') },
        {
          server_name: `127.0.0.1:${closed}`,
          public_baseurl: `http://127.0.0.1:${closed}/`,
          trusted_key_servers: [],
          email: { smtp_host: '127.0.0.1', smtp_port: smtpPort, notif_from: 'x <x@example.org>' },
        },
      ),
    );
    const { out } = await rookery(['doctor', '-c', file, '--json']);
    const results = JSON.parse(out) as { name: string; findings: { level: string; text: string }[] }[];
    return Object.fromEntries(results.map(({ name, findings }) => [name, findings]));
  }

  it('knows a mail server by its greeting, and says who cannot be reached', async () => {
    greeting = '220 mail.example.org ESMTP';
    const found = await doctor(port());
    expect(found['mail']).toEqual([{ level: 'ok', text: `the mail server 127.0.0.1:${port()} answers` }]);
    expect(found['federation']).toMatchObject([
      { level: 'error', text: expect.stringContaining(`127.0.0.1:${closed}: ECONNREFUSED`) },
    ]);
    expect(found['clients']).toMatchObject([{ level: 'error' }, { level: 'error' }]);
    expect(found['names']).toEqual([{ level: 'ok', text: '127.0.0.1 is 127.0.0.1' }]);
    greeting = 'SSH-2.0-x';
    expect((await doctor(port()))['mail']).toMatchObject([
      { level: 'error', text: expect.stringContaining('SSH-2.0-x') },
    ]);
    expect((await doctor(closed))['mail']).toMatchObject([
      { level: 'error', text: expect.stringContaining('cannot be reached') },
    ]);
  });
});
