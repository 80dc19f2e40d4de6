import { databaseMigrations } from '@rookery/database';
import { querySchemaOf, RequestAuthenticator } from '@rookery/http';
import type { MailRequest } from '@rookery/templates';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { SessionService } from '../sessions/session.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { AccountRenewalController } from '../http/account-renewal.controller.js';
import { AccountRenewal } from './account-renewal.service.js';
import { RenewalMails } from './renewal-mails.js';
import { AccountService } from './account.service.js';

const day = 86_400_000;
const validity = { enabled: true, period: '30d', renew_at: '7d' };

eachDatabase('account validity', (open) => {
  const clock = new FakeClock();
  const mails: MailRequest[] = [];
  let test: TestDatabase;
  let users: UsersFixture;

  const newUser = async (localpart: string): Promise<{ userId: string; token: string }> => {
    const threepids = [{ medium: 'email', address: `${localpart}@example.org`, validatedMs: 1 }];
    const userId = await users.get(AccountService).register({ localpart, threepids, origin: {} });
    return { userId, token: (await users.get(SessionService).open({ userId })).accessToken };
  };
  const access = (token: string, expired = false) =>
    users
      .get(RequestAuthenticator)
      .authenticate(users.request('GET', '/x', undefined, { token }), { auth: 'required', expired });
  const open1 = async (token: string) => {
    const request = users.request('GET', `/renew?token=${encodeURIComponent(token)}`);
    const query = querySchemaOf(AccountRenewalController.prototype, 'renew')!.read(request) as { token: string };
    return users.get(AccountRenewalController).renew(request, query);
  };
  const linkToken = (): string => new URL(mails.at(-1)!.values['url'] as string).searchParams.get('token')!;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({
      database: test.database,
      clock,
      mails,
      settings: { account_validity: validity },
    });
  });
  afterAll(() => users.close());
  beforeEach(() => void mails.splice(0));

  it('shuts an expired account out until its link is followed', async () => {
    const { userId, token } = await newUser('mortal');
    const renewal = users.get(RenewalMails);
    await renewal.tellExpiring();
    expect(mails).toEqual([]);
    // Twenty-three days pass in the database's eyes only: advancing the clock would fire every timer on the way.
    await test.database.write((tx) =>
      tx.run('UPDATE account_validity SET expiration_ts_ms = ?', [clock.nowMs() + 7 * day]),
    );
    await renewal.tellExpiring();
    await renewal.tellExpiring();
    expect(mails).toMatchObject([
      {
        to: 'mortal@example.org',
        kind: 'expiry',
        subject: 'Renew your Matrix account',
        values: { display_name: 'mortal', expiration_ts: clock.nowMs() + 7 * day },
      },
    ]);
    await test.database.write((tx) => tx.run('UPDATE account_validity SET expiration_ts_ms = ?', [clock.nowMs()]));
    await clock.advance(61_000);
    await expect(access(token)).rejects.toMatchObject({ status: 403, errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' });
    expect(await access(token, true)).toMatchObject({ userId });

    const page = await open1(linkToken());
    expect([page.status, page.body]).toEqual([200, expect.stringContaining('renewed')]);
    expect(await access(token)).toMatchObject({ userId });
    // Used again, the link renews nothing and says until when the account is valid.
    const again = await open1(linkToken());
    expect(again.status).toBe(200);
    expect(again.body).not.toBe(page.body);
    expect(
      await test.database.get('SELECT expiration_ts_ms FROM account_validity WHERE user_id = ?', [userId]),
    ).toEqual({ expiration_ts_ms: clock.nowMs() + 30 * day });
    expect((await open1('guess')).status).toBe(404);
    await expect(open1('')).rejects.toMatchObject({ status: 400, errcode: 'M_MISSING_PARAM' });
  });

  it('mails on demand; a new link replaces the old one', async () => {
    const { userId } = await newUser('asking');
    const renewal = users.get(AccountRenewal);
    await renewal.sendMail(userId, {});
    const first = linkToken();
    await renewal.sendMail(userId, {});
    expect((await renewal.renew(first, {})).valid).toBe(false);
    const results = await Promise.all(Array.from({ length: 4 }, () => renewal.renew(linkToken(), {})));
    expect(results.map(({ valid, stale }) => [valid, stale]).sort()).toEqual([
      [false, true],
      [false, true],
      [false, true],
      [true, false],
    ]);
    expect(JSON.stringify(await test.database.query('SELECT * FROM account_validity'))).not.toContain(linkToken());
  });

  it('forgets what was mailed once somebody else decides', async () => {
    const { userId } = await newUser('decided');
    const renewal = users.get(AccountRenewal);
    await renewal.sendMail(userId, {});
    await renewal.renewByAdmin({ user_id: userId, expiration_ts: clock.nowMs() + day }, {});
    expect(await renewal.renew(linkToken(), {})).toMatchObject({ valid: false, stale: false });
    expect(
      await test.database.get('SELECT expiration_ts_ms FROM account_validity WHERE user_id = ?', [userId]),
    ).toEqual({ expiration_ts_ms: clock.nowMs() + day });
  });

  it('writes nothing for a link that was made up, nor for one that was followed', async () => {
    const { userId } = await newUser('tried');
    await users.get(AccountRenewal).sendMail(userId, {});
    const { write } = test.database;
    const written: (string | undefined)[] = [];
    Object.assign(test.database, {
      write: (...args: Parameters<typeof write>) => {
        written.push(args[1]?.name);
        return write.apply(test.database, args);
      },
    });
    try {
      expect((await open1('guess')).status).toBe(404);
      expect(written).not.toContain('account_renewal');
      expect((await open1(linkToken())).body).toContain('renewed');
      expect((await open1(linkToken())).status).toBe(200);
      expect(written.filter((name) => name === 'account_renewal')).toHaveLength(1);
    } finally {
      Object.assign(test.database, { write });
    }
  });

  it('tells everybody whose time has come, however many they are', async () => {
    const names = Array.from({ length: 230 }, (_, i) => `@one-of-many-${i}:example.org`);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'users',
        ['name', 'creation_ts'],
        names.map((name) => [name, 1]),
      );
      await tx.insertMany(
        'account_validity',
        ['user_id', 'expiration_ts_ms', 'email_sent'],
        names.map((name) => [name, clock.nowMs(), false]),
      );
    });
    const untold = () =>
      test.database.get('SELECT COUNT(*) AS n FROM account_validity WHERE email_sent = ? AND expiration_ts_ms <= ?', [
        false,
        clock.nowMs(),
      ]);
    // A server that stops, or one that sends no mail, leaves them for another time.
    await users.get(RenewalMails).tellExpiring(AbortSignal.abort());
    const silent = await buildUsers({ database: test.database, clock, settings: { account_validity: validity } });
    await silent.get(RenewalMails).tellExpiring();
    await silent.close();
    expect(await untold()).toEqual({ n: 230 });
    await users.get(RenewalMails).tellExpiring();
    expect(await untold()).toEqual({ n: 0 });
  });

  it('tells the others, whoever cannot be told', async () => {
    // An address of before addresses had this bound: nothing can be written to it.
    const tooLong = (letter: string) => ({
      medium: 'email',
      address: `${letter.repeat(65)}@example.org`,
      validatedMs: 1,
    });
    const short = { medium: 'email', address: 'both@example.org', validatedMs: 1 };
    const accounts = users.get(AccountService);
    const first = await accounts.register({ localpart: 'a-long-one', threepids: [tooLong('x')], origin: {} });
    const both = await accounts.register({ localpart: 'a-mixed-one', threepids: [tooLong('y'), short], origin: {} });
    const { userId: broken } = await newUser('broken-mail');
    const { userId: last } = await newUser('behind-them');
    await test.database.write(async (tx) => {
      for (const [index, userId] of [first, both, broken, last].entries())
        await tx.run('UPDATE account_validity SET expiration_ts_ms = ? WHERE user_id = ?', [index, userId]);
    });
    const { push } = mails;
    mails.push = (mail) => {
      if (mail.to.startsWith('broken')) throw new Error('a template is wrong');
      return push.call(mails, mail);
    };
    await users.get(RenewalMails).tellExpiring();
    expect(mails.map(({ to }) => to)).toEqual(['both@example.org', 'behind-them@example.org']);
    mails.push = push;
    await users.get(RenewalMails).tellExpiring();
    expect(mails.map(({ to }) => to).slice(2)).toEqual(['broken-mail@example.org']);
    await expect(users.get(AccountRenewal).sendMail(first, {})).rejects.toMatchObject({ status: 400 });
  });

  it('does not look at accounts without an address again and again', async () => {
    const userId = await users.get(AccountService).register({ localpart: 'unreachable', origin: {} });
    await test.database.write((tx) =>
      tx.run('UPDATE account_validity SET expiration_ts_ms = ? WHERE user_id = ?', [clock.nowMs(), userId]),
    );
    await users.get(RenewalMails).tellExpiring();
    expect(
      await test.database.get('SELECT COUNT(*) AS n FROM account_validity WHERE user_id = ? AND email_sent = ?', [
        userId,
        true,
      ]),
    ).toEqual({ n: 1 });
    await expect(users.get(AccountRenewal).sendMail(userId, {})).rejects.toMatchObject({ status: 400 });
  });
});
