import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { claimDatabase, migrate, openDatabase, openReader, readSchemaState, reviveRestored } from '@rookery/database';
import { migrations } from '@rookery/homeserver';
import { SystemClock } from '@rookery/platform';
import { eachDatabase, makeTestDatabasePlace, type TestDatabase, type TestDatabasePlace } from '@rookery/testing';
import { stringify } from 'yaml';
import { rookery, sectionFor, settingsFor } from './fixtures/rookery.fixture.js';

eachDatabase('rookery backup and restore', (open, kind) => {
  let test: TestDatabase;
  let empty: TestDatabasePlace;
  let folder: string;
  let backups: string;
  let config: string;
  let other: string;
  const pictures = ['local_content/aa/bb/one', 'local_content/aa/bb/two', 'remote_content/x.org/cc/dd/three'];
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  };

  beforeEach(async () => {
    test = await open();
    empty = await makeTestDatabasePlace(kind);
    await migrate(test.database, migrations);
    folder = mkdtempSync(join(tmpdir(), 'rookery-backup-'));
    backups = join(folder, 'backups');
    config = join(folder, 'old', 'homeserver.yaml');
    other = join(folder, 'new', 'homeserver.yaml');
    const more = { signing_key_path: 'signing.key', media_store_path: 'media', macaroon_secret_key_path: 'macaroon' };
    write(config, settingsFor(test.options, more));
    write(other, settingsFor(empty.options, more));
    write(join(folder, 'old', 'signing.key'), 'ed25519 a key\n');
    for (const place of ['old', 'new']) write(join(folder, place, 'macaroon'), `of ${place}\n`);
    for (const path of pictures) write(join(folder, 'old', 'media', path), `contents of ${path}`);
    write(join(folder, 'old', 'media', 'tmp', 'half'), 'half an upload');
    await user('@alice:example.org');
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    await test.close();
    await empty.remove();
  });
  const user = (name: string): Promise<number> =>
    test.database.write((tx) => tx.run('INSERT INTO users (name, creation_ts) VALUES (?, 1)', [name]));
  const make = (...more: string[]): ReturnType<typeof rookery> =>
    rookery(['backup', '-c', config, '--to', backups, ...more]);
  const restore = (...more: string[]): ReturnType<typeof rookery> =>
    rookery(['restore', '--from', backups, '-c', other, ...more]);
  const ids = async (): Promise<string[]> =>
    (JSON.parse((await rookery(['backup', 'list', '--from', backups, '--json'])).out) as { id: string }[]).map(
      ({ id }) => id,
    );
  const objects = (): string[] =>
    readdirSync(join(backups, 'objects')).flatMap((prefix) =>
      readdirSync(join(backups, 'objects', prefix)).map((name) => join(backups, 'objects', prefix, name)),
    );

  it('puts everything into another empty place, and takes an older one where that is named', async () => {
    expect(await make()).toMatchObject({
      code: 0,
      out: expect.stringMatching(/ 3 media files .* 3 files of settings/),
    });
    await user('@bob:example.org');
    write(join(folder, 'old', 'media', 'local_content/aa/bc/four'), 'four');
    const second = await make();
    expect(second.out).toContain('3 media files as before');
    expect((await rookery(['backup', 'verify', '--all', '--from', backups])).out).toMatch(/: whole \(\d+ pieces\)/);

    const [older = ''] = await ids();
    const restored = await restore(older);
    expect(restored).toMatchObject({ code: 0 });
    expect(restored.notes).toMatch(/macaroon stays as it is; the backup has another one/);
    expect(readFileSync(join(folder, 'new', 'signing.key'), 'utf8')).toBe('ed25519 a key\n');
    for (const path of pictures)
      expect(readFileSync(join(folder, 'new', 'media', path), 'utf8')).toBe(`contents of ${path}`);
    expect(existsSync(join(folder, 'new', 'media', 'tmp'))).toBe(false);
    expect(existsSync(join(folder, 'new', 'media', 'local_content/aa/bc/four'))).toBe(false);
    const database = await openDatabase(empty.options, new SystemClock());
    expect(await database.query('SELECT name FROM users')).toEqual([{ name: '@alice:example.org' }]);
    await database.close();
    // A second time there is something already.
    expect(await restore(older)).toMatchObject({
      code: 1,
      notes: expect.stringContaining('The database is not empty'),
    });
  });

  it('writes over nothing, and goes on where it was interrupted', async () => {
    await make();
    write(join(folder, 'new', 'signing.key'), 'ed25519 another\n');
    expect((await restore()).notes).toMatch(/signing.key holds another signing key/);
    rmSync(join(folder, 'new', 'signing.key'));
    write(join(folder, 'new', 'media', 'local_content/aa/bb/mine'), 'mine');
    expect((await restore()).notes).toMatch(/The media store is not empty: .*mine is not in the backup/);
    rmSync(join(folder, 'new', 'media', 'local_content/aa/bb/mine'));
    // What an interrupted one leaves: a file that is there, one that is half written.
    write(join(folder, 'new', 'media', pictures[0] ?? ''), `contents of ${pictures[0]}`);
    write(join(folder, 'new', 'media', `${pictures[1]}.rookery-restoring`), 'half');
    expect(await restore()).toMatchObject({ code: 0 });
    for (const path of pictures)
      expect(readFileSync(join(folder, 'new', 'media', path), 'utf8')).toBe(`contents of ${path}`);
    expect(existsSync(join(folder, 'new', 'media', `${pictures[1]}.rookery-restoring`))).toBe(false);
  });

  it('refuses what does not belong together', async () => {
    await make();
    const named = { server_name: 'other.org' };
    write(other, settingsFor(empty.options, named));
    expect((await restore()).notes).toContain('The backup is one of example.org; these settings are for other.org');
    expect((await rookery(['restore', '--from', folder])).notes).toMatch(
      /^There are no backups in .*rookery-backup.json/,
    );
    expect((await rookery(['backup', '-c', config, '--to', join(folder, 'old')])).notes).toMatch(
      /is not empty, and has no backups/,
    );
    expect((await rookery(['restore', '20200101T000000Z', '--from', backups])).notes).toContain(
      'the backup 20200101T000000Z is missing',
    );
    expect((await make('--encrypt')).notes).toMatch(/are not encrypted/);
    expect(await make('--password-file', other)).toMatchObject({
      code: 1,
      notes: expect.stringMatching(/not encrypted/),
    });
    const claim = await claimDatabase({ name: 'sqlite3', path: join(backups, 'rookery-backup.json') });
    expect((await make()).notes).toMatch(/Another command is at work/);
    await claim.release();
    const wrong = kind === 'sqlite' ? 'postgres' : 'sqlite';
    const elsewhere = await makeTestDatabasePlace(wrong);
    write(other, settingsFor(elsewhere.options));
    expect((await restore()).notes).toMatch(/is restored into the same\nAfterwards "rookery move-database"/);
    await elsewhere.remove();
  });

  it('opens with its password alone, and says what is damaged', async () => {
    const password = join(folder, 'password');
    write(password, 'sesame\n');
    expect((await make('--encrypt', '--password-file', password)).notes).toContain('Keep the password elsewhere');
    for (const file of objects()) expect(readFileSync(file).includes('contents of')).toBe(false);
    expect(await rookery(['backup', 'verify', '--from', backups], ['Sesame'])).toMatchObject({
      code: 1,
      notes: expect.stringContaining('not the password'),
    });
    expect(await rookery(['backup', 'verify', '--from', backups], ['sesame'])).toMatchObject({ code: 0 });
    // The one with the database's tables: --quick has to read the list of media files.
    const [first = ''] = objects().sort((a, b) => statSync(b).size - statSync(a).size);
    const bytes = readFileSync(first);
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    writeFileSync(first, bytes);
    const verify = (...more: string[]): ReturnType<typeof rookery> =>
      rookery(['backup', 'verify', '--from', backups, '--password-file', password, ...more]);
    expect(await verify()).toMatchObject({
      code: 1,
      out: expect.stringMatching(/[0-9a-f]{64} is damaged/),
      notes: expect.stringContaining('1 backup of 1 cannot be restored as a whole'),
    });
    expect(await verify('--quick')).toMatchObject({ code: 0 });
    rmSync(first);
    expect(await verify('--quick')).toMatchObject({ code: 1, out: expect.stringContaining('is missing') });
  });

  it('hides everything where a password is named, in a new folder as well', async () => {
    const password = join(folder, 'password');
    write(password, 'sesame\n');
    expect((await make('--password-file', password)).notes).toContain('Keep the password elsewhere');
    for (const file of objects()) expect(readFileSync(file).includes('contents of')).toBe(false);
    expect((await rookery(['backup', 'verify', '--from', backups], ['Sesame'])).notes).toContain('not the password');
    expect(await make('--password-file', password)).toMatchObject({ code: 0 });
  });

  it('removes old ones with what only they need', async () => {
    await make();
    rmSync(join(folder, 'old', 'media', pictures[0] ?? ''));
    await make();
    // What one that was interrupted had written.
    const left = join(backups, 'objects', '00');
    mkdirSync(left, { recursive: true });
    writeFileSync(join(left, '0'.repeat(64)), 'belongs to nothing');
    const [older = '', newer = ''] = await ids();
    expect(await rookery(['backup', 'prune', '--from', backups])).toMatchObject({ code: 2 });
    expect((await rookery(['backup', 'prune', '--from', backups, '--keep-last', '1'])).out).toMatch(
      new RegExp(`^Removed ${older}: .* free again`),
    );
    expect(await ids()).toEqual([newer]);
    expect(existsSync(join(left, '0'.repeat(64)))).toBe(false);
    expect(await rookery(['backup', 'verify', '--from', backups])).toMatchObject({ code: 0 });
    expect((await make('--keep-last', '1')).out).toContain(`Removed ${newer}`);
    expect(await restore()).toMatchObject({ code: 0 });
  });

  it('lists and removes others although one is damaged, and says how to be rid of one that is to stay', async () => {
    await make();
    await make();
    const [older = '', newer = ''] = await ids();
    const place = (id: string): string => join(backups, 'backups', id);
    writeFileSync(place(older), 'torn');
    const prune = (): ReturnType<typeof rookery> => rookery(['backup', 'prune', '--from', backups, '--keep-last', '1']);
    const { out } = await rookery(['backup', 'list', '--from', backups]);
    expect(out).toContain(`${older}  cannot be restored: ${older} is damaged`);
    expect(out).toContain(`${newer}  example.org`);
    expect(await prune()).toMatchObject({ code: 0, out: expect.stringContaining(`Removed ${older}:`) });
    writeFileSync(place(newer), 'torn');
    expect(await prune()).toMatchObject({ code: 1, notes: expect.stringContaining(`remove ${place(newer)}.`) });
    expect(objects()).not.toEqual([]);
    rmSync(place(newer));
    expect(await prune()).toMatchObject({ code: 0 });
    expect(objects()).toEqual([]);
  });

  it('lets what was restored be moved to the other kind of database, before any server has begun on it', async () => {
    await make();
    expect(await restore()).toMatchObject({ code: 0 });
    const elsewhere = await makeTestDatabasePlace(kind === 'sqlite' ? 'postgres' : 'sqlite');
    write(join(folder, 'next.yaml'), stringify({ database: sectionFor(elsewhere.options) }));
    const moved = await rookery(['move-database', '-c', other, '--to', join(folder, 'next.yaml')]);
    expect(moved).toMatchObject({ code: 0, out: expect.stringContaining('counts and hashes agree') });
    const database = await openDatabase(elsewhere.options, new SystemClock());
    expect(await database.query('SELECT name FROM users')).toEqual([{ name: '@alice:example.org' }]);
    // Its counters have yet to skip what was given out since the backup.
    expect(await reviveRestored(database, [], 1)).toBe(true);
    await database.close();
    await elsewhere.remove();
  });

  it('lets a database that was put back otherwise be taken for restored', async () => {
    expect(await rookery(['restore', 'adopt', '-c', config])).toMatchObject({ code: 0 });
    expect(await test.database.query('SELECT * FROM database_restored')).toHaveLength(1);
  });

  it.each([
    ['restore', 'adopt'],
    ['doctor', '--offline', '--repair'],
    ['move-database', '--to', 'next.yaml'],
  ])('makes no database where there is none to %s', async (...command) => {
    write(join(folder, 'next.yaml'), settingsFor(test.options));
    const args = command.map((arg) => (arg === 'next.yaml' ? join(folder, arg) : arg));
    expect(await rookery([...args, '-c', other])).toMatchObject({
      code: 1,
      notes: expect.stringMatching(
        kind === 'sqlite'
          ? /^There is no database .*homeserver\.db \(SQLite\)$/
          : /^The database test_.* \(PostgreSQL\) holds nothing of a server$/,
      ),
    });
    const reader = await openReader(empty.options, new SystemClock());
    expect(reader && (await readSchemaState(reader.db)).madeBy).toBe(kind === 'sqlite' ? undefined : 'none');
    await reader?.close();
  });
});
