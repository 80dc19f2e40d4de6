import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseMigrations } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { ConsentController } from '../http/consent.controller.js';
import { ConsentService } from './consent.service.js';

eachDatabase('consent', (open) => {
  const clock = new FakeClock();
  const alice = '@alice:example.org';
  let folder: string;
  let test: TestDatabase;
  let users: UsersFixture;
  const show = (query: string) => {
    const given = Object.fromEntries(new URLSearchParams(query)) as { v?: string; u?: string; h?: string };
    return users.get(ConsentController).show({ v: given.v, u: given.u, h: given.h });
  };
  const noLink = { v: undefined, u: undefined, h: undefined };
  const query = (userId = alice): URLSearchParams => new URL(users.get(ConsentService).uriFor(userId)).searchParams;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'consent-'));
    await mkdir(join(folder, 'en'));
    await writeFile(
      join(folder, 'en', '1.0.html'),
      '{{ user }} {{ version }} {{ has_consented }} {{ public_version }}',
    );
    await writeFile(join(folder, 'en', 'success.html'), 'thanks');
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({
      database: test.database,
      clock,
      settings: {
        form_secret: 'form',
        user_consent: { version: '1.0', template_dir: folder, server_notice_content: { body: 'x' } },
      },
    });
    await users.get(AccountService).register({ localpart: 'alice', origin: {} });
  });
  afterAll(async () => {
    await users.close();
    await rm(folder, { recursive: true });
  });

  it('shows the policy to everybody, and to a user whether they agreed', async () => {
    expect((await show('')).body).toBe(' 1.0 False True');
    expect((await show(query().toString())).body).toBe('alice 1.0 False False');
    expect(await users.get(ConsentService).isMissing(alice)).toBe(true);
    const form = Object.fromEntries([...query(), ['v', '1.0']].map(([name, value]) => [name, [value!]]));
    expect((await users.get(ConsentController).agree(noLink, form)).body).toBe('thanks');
    expect((await show(query().toString())).body).toBe('alice 1.0 True False');
    expect(await users.get(ConsentService).isMissing(alice)).toBe(false);
  });

  it('asks neither users of application services nor closed accounts, and reminds each once', async () => {
    const consent = users.get(ConsentService);
    const accounts = users.get(AccountService);
    await accounts.register({ localpart: 'bridged', appserviceId: 'bridge', origin: {} });
    await accounts.register({ localpart: 'guest', isGuest: true, origin: {} });
    await accounts.register({ localpart: 'bob', origin: {} });
    await accounts.register({ localpart: 'closed', origin: {} });
    await accounts.setFlags('@closed:example.org', { deactivated: true });
    const all = ['alice', 'bob', 'bridged', 'closed', 'ghost', 'guest'].map((name) => `@${name}:example.org`);
    expect(await consent.isMissing('@bridged:example.org')).toBe(false);
    expect(await consent.toRemind(all)).toEqual(['@bob:example.org']);
    await consent.reminded('@bob:example.org', '0.9');
    expect(await consent.toRemind(all)).toEqual(['@bob:example.org']);
    await consent.reminded('@bob:example.org', '1.0');
    expect(await consent.toRemind(all)).toEqual([]);
  });

  it('lets nobody agree for another, nor to what is not in force', async () => {
    const signature = query().get('h')!;
    await expect(show(`u=bob&h=${signature}`)).rejects.toMatchObject({ status: 403 });
    for (const h of ['', 'x', '0'.repeat(64)])
      await expect(show(`u=alice&h=${h}`)).rejects.toMatchObject({ status: 403 });
    await expect(show(query('@ghost:example.org').toString())).rejects.toMatchObject({ status: 404 });
    for (const v of ['2.0', '../../1.0', 'nul%00']) await expect(show(`v=${v}`)).rejects.toMatchObject({ status: 404 });
    const form = { v: ['success'], u: ['alice'], h: [signature] };
    await expect(users.get(ConsentController).agree(noLink, form)).rejects.toMatchObject({ status: 404 });
  });
});
