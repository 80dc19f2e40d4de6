import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rookery } from './fixtures/rookery.fixture.js';

describe('rookery releases', () => {
  it('lists them, and says what one changes', async () => {
    const all = await rookery(['releases']);
    expect(all.code).toBe(0);
    expect(all.out).toMatch(/^1\.62 +check_event_for_spam; .* …$/m);
    const one = await rookery(['releases', 'v1.56.0']);
    expect(one.out).toMatch(/^1\.56\n {2}\[setting\] enable_registration_without_verification\n/);
    expect(one.out).toContain('to do: Add a verification, or set it to true.');
    expect((await rookery(['releases', '1.26', '--json'])).out).toContain('"servedFrom": 59');
    expect((await rookery(['releases', 'all'])).out).toContain('hs_token');
    expect(await rookery(['releases', '1.63'])).toMatchObject({ code: 1 });
    expect(await rookery(['releases', 'newest'])).toMatchObject({ code: 2 });
  });
});

describe('rookery upgrade notes', () => {
  let folder: string;
  let file: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-notes-'));
    file = join(folder, 'homeserver.yaml');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('says what changes for the settings, in order, with file and line', async () => {
    writeFileSync(
      file,
      [
        'server_name: example.org',
        'enable_registration: true',
        'database: {name: sqlite3}',
        'account_threepid_delegates:',
        '  # of old',
        '  email: https://id.example.org',
        'worker_replication_host: x',
        'room_list_publication_rules: []',
      ].join('\n'),
    );
    const { code, out, notes } = await rookery(['upgrade', 'notes', '--from', '1.40', '--to', '1.126', '-c', file]);
    expect(code).toBe(0);
    expect(notes).toMatch(/^\d+ changes from 1\.40 to 1\.126 with these settings/);
    expect(out).toContain(`      at ${file}:2: enable_registration`);
    expect(out).toContain(`      at ${file}:6: account_threepid_delegates.email`);
    const order = ['1.56', '1.64', '1.66', '1.84', '1.88'].map((version) =>
      out.search(new RegExp(`^${version}$`, 'm')),
    );
    expect(order.every((at) => at >= 0)).toBe(true);
    expect(order).toEqual(order.toSorted((a, b) => a - b));
    // What these settings do not have, or already say.
    expect(out).not.toContain('check_event_for_spam');
    expect(out).not.toContain('PostgreSQL');
    expect(out).not.toContain('room_list_publication_rules');
    expect(out).toContain('allow_device_name_lookup_over_federation');
    const all = await rookery(['upgrade', 'notes', '--from', '1.40', '--to', '1.126', '-c', file, '--all']);
    expect(all.out).toContain('check_event_for_spam');
    expect(
      JSON.parse((await rookery(['upgrade', 'notes', '--from', '1.63', '--to', '1.64', '-c', file, '--json'])).out),
    ).toEqual([expect.objectContaining({ release: '1.64', where: [expect.objectContaining({ line: 6, file })] })]);
  });

  it('takes the last of several files, and refuses what cannot be', async () => {
    const second = join(folder, 'more.yaml');
    writeFileSync(file, 'enable_registration: true\n');
    writeFileSync(second, '\nenable_registration: false\n');
    const args = ['upgrade', 'notes', '--from', '1.55', '--to', '1.56'];
    expect((await rookery([...args, '-c', file])).out).toContain(`${file}:1`);
    expect((await rookery([...args, '-c', file, '-c', second])).out).toBe('');
    writeFileSync(file, 'enable_registration: false\nenable_registration: true\n');
    expect((await rookery([...args, '-c', file])).out).toContain(`${file}:2`);
    writeFileSync(file, 'enable_registration: true\nenable_registration: false\n');
    expect(await rookery([...args, '-c', file])).toMatchObject({ code: 0, out: '' });
    expect(await rookery(['upgrade', 'notes', '--from', '1.57', '--to', '1.56'])).toMatchObject({ code: 2 });
    expect(await rookery(['upgrade', 'notes', '--from', 'new'])).toMatchObject({ code: 2 });
    const nowhere = await rookery([...args, '-c', join(folder, 'nowhere.yaml')]);
    expect(nowhere).toMatchObject({ code: 1, notes: expect.stringContaining('there is no such file') });
    writeFileSync(file, 'a: [');
    expect(await rookery([...args, '-c', file])).toMatchObject({
      code: 1,
      notes: expect.stringContaining(`${file}:1: not valid YAML`),
    });
  });
});
