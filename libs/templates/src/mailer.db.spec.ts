import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Config, SystemIds } from '@rookery/platform';
import { eventually, eachDatabase, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import PostalMime, { type Email } from 'postal-mime';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { Mailer, mailerOptionsOf, type MailRequest, Pages, pagesOptionsOf, templatesMigrations } from './index.js';
import { isMailAddress } from './mail-address.js';
import { type MailerOptions } from './mailer.js';

/** Made for these tests; nothing else trusts it. */
const certificate = `-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUOZxCmtcFEHICZIAa1xtTa8ikR4MwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDA3MTUyMVoYDzIxMjYxMDI3
MDcxNTIxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATKbtYNwuWETimhrB/Q95VSn8T5o3rY9i84V+ttRRVOS9CXxn5jHGUO
AC+0rAqWw0pGuu4Sfm8ov1IYzNH8azUOo28wbTAdBgNVHQ4EFgQUBFlvPbukoIas
jPnCu1qTTGH/zZswHwYDVR0jBBgwFoAUBFlvPbukoIasjPnCu1qTTGH/zZswDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgY+UJHrHBTpV5YfP3rzTHr7NoKS2a1a0QuFZqJ977dhwCICvl
z+0ZgVQCybINrL+SF6/aA2MywxulLwmd1Q6sA7jS
-----END CERTIFICATE-----
`;
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxuEU47lkKZKRwlTQ
FTXBAb5o48nq7oYyfkA1klP0FyqhRANCAATKbtYNwuWETimhrB/Q95VSn8T5o3rY
9i84V+ttRRVOS9CXxn5jHGUOAC+0rAqWw0pGuu4Sfm8ov1IYzNH8azUO
-----END PRIVATE KEY-----
`;

interface Received {
  readonly mail: Email;
  readonly raw: string;
  readonly secure: boolean;
  readonly user: string | undefined;
  readonly recipients: readonly string[];
}

async function startServer(
  options: SMTPServerOptions = {},
): Promise<{ port: number; received: Received[]; attempts: () => number; stop: () => Promise<void> }> {
  const received: Received[] = [];
  let attempts = 0;
  const server = new SMTPServer({
    cert: certificate,
    key,
    authOptional: true,
    onAuth: (auth, _session, done) =>
      auth.username === 'rookery' && auth.password === 'pass'
        ? done(null, { user: auth.username })
        : done(new Error('Wrong password')),
    onMailFrom: (_address, _session, done) => {
      attempts++;
      done();
    },
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const raw = Buffer.concat(chunks).toString();
        void PostalMime.parse(raw).then((mail) => {
          received.push({
            mail,
            raw,
            secure: session.secure,
            user: session.user,
            recipients: session.envelope.rcptTo.map(({ address }) => address),
          });
          done();
        });
      });
    },
    ...options,
  });
  server.on('error', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  return {
    port: (server.server.address() as AddressInfo).port,
    received,
    attempts: () => attempts,
    stop: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

const request: MailRequest = {
  to: 'alice@example.org',
  kind: 'password_reset',
  subject: 'Password reset',
  values: { link: 'https://example.org/?a=1&b=2' },
};

eachDatabase('Mailer', (open, kind) => {
  let database: TestDatabase;
  let clock: FakeClock;
  let logger: RecordingLogger;
  const running: { stop: () => Promise<void> }[] = [];
  const config = Config.fromObject({
    server_name: 'hs.example.org',
    email: { notif_from: '%(app)s mail <noreply@example.org>', app_name: 'Nest' },
  });
  const pages = new Pages(pagesOptionsOf(config), new SystemIds(), new RecordingLogger());

  beforeEach(async () => {
    clock = new FakeClock();
    logger = new RecordingLogger();
    database = await open(clock);
    await database.migrate(templatesMigrations);
  });
  afterEach(async () => {
    for (const one of running.splice(0)) await one.stop();
    await database.close();
  });
  const smtp = async (options?: SMTPServerOptions): Promise<Awaited<ReturnType<typeof startServer>>> => {
    const server = await startServer(options);
    running.push(server);
    return server;
  };
  const mailer = (port: number, options: Partial<MailerOptions> = {}, db = database.database): Mailer => {
    const made = new Mailer(
      { ...mailerOptionsOf(config)!, host: '127.0.0.1', port, tlsName: 'localhost', ca: certificate, ...options },
      pages,
      db,
      clock,
      new SystemIds(),
      logger,
    );
    made.start();
    running.unshift(made);
    return made;
  };
  const waiting = async (): Promise<number> => (await database.database.query('SELECT mail_id FROM mail_queue')).length;
  const settled = (expected: number): Promise<true> => eventually(async () => (await waiting()) === expected);

  /** Lets time go by in steps, with real pauses for the network in between. */
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 5000) {
      await clock.advance(5000);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  /** Lets time go on until something is so: what the network answers may come after the time that a step gives it. */
  const inTime = (check: () => boolean | Promise<boolean>): Promise<true> =>
    eventually(async () => (await check()) || (await clock.advance(500), false));

  it('sends text and HTML, logged in and encrypted where that is offered', async () => {
    const server = await smtp();
    await mailer(server.port, { user: 'rookery', password: 'pass' }).send({
      ...request,
      headers: { 'List-Unsubscribe': '<https://example.org/u>' },
    });
    await settled(0);
    expect(server.received).toHaveLength(1);
    const { mail, secure, user, recipients } = server.received[0]!;
    expect([secure, user, recipients]).toEqual([true, 'rookery', ['alice@example.org']]);
    expect(mail.from).toMatchObject({ name: 'Nest mail', address: 'noreply@example.org' });
    expect(mail.subject).toBe('Password reset');
    expect(mail.text).toContain('https://example.org/?a=1&b=2');
    expect(mail.html).toContain('href="https://example.org/?a=1&amp;b=2"');
    expect(mail.messageId).toMatch(/^<[A-Za-z]{24}@hs\.example\.org>$/);
    const headers = Object.fromEntries(mail.headers.map(({ key: name, value }) => [name, value]));
    expect(headers).toMatchObject({
      'auto-submitted': 'auto-generated',
      'list-unsubscribe': '<https://example.org/u>',
    });
  });

  it('lets nobody write headers or recipients', async () => {
    const server = await smtp();
    const sender = mailer(server.port);
    await sender.send({
      ...request,
      subject: 'Hi\r\nBcc: eve@evil.org\r\n\r\nbody\u202e\u2066',
      headers: { 'X-A': 'x\r\nX-Evil: 1', 'X-B\r\nX-Evil': '1' },
    });
    await settled(0);
    const { mail, recipients, raw } = server.received[0]!;
    expect(recipients).toEqual(['alice@example.org']);
    expect(mail.subject).toBe('Hi Bcc: eve@evil.org body');
    expect(raw).not.toMatch(/^(?:Bcc|X-Evil):/im);
    for (const to of [
      'a@x.org, b@x.org',
      'a@x.org\r\nBcc: b@x.org',
      '"a@b"@x.org',
      '<a@x.org>',
      'Alice <a@x.org>',
      'no address',
      'a@x.org;b@x.org',
      'a@-',
      `${'a'.repeat(65)}@x.org`,
      'a@x..org',
      'a@x.org\u0000',
      '',
    ]) {
      await expect(sender.send({ ...request, to })).rejects.toMatchObject({ status: 400, errcode: 'M_INVALID_PARAM' });
    }
    expect(await waiting()).toBe(0);
  });

  it('sends what was committed, and nothing else', async () => {
    const server = await smtp();
    const sender = mailer(server.port);
    await expect(
      database.database.write(async (tx) => {
        await sender.queue(tx, request);
        throw new Error('rolled back');
      }),
    ).rejects.toThrow('rolled back');
    await sender.send({ ...request, to: 'bob@example.org' });
    await settled(0);
    expect(server.received.map(({ recipients }) => recipients[0])).toEqual(['bob@example.org']);
  });

  it('keeps mails over a mail server that is away and a restart', async () => {
    const first = mailer(1);
    await first.send(request);
    await eventually(() => logger.lines.some(({ message }) => message.includes('tried again')));
    await first.stop();
    expect(await waiting()).toBe(1);
    expect(JSON.stringify(logger.lines)).not.toContain('alice@');

    const server = await smtp();
    const other = await database.reopen(clock);
    mailer(server.port, {}, other);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.received).toHaveLength(0);
    await pass(75_000);
    await inTime(async () => (await waiting()) === 0);
    expect(server.received).toHaveLength(1);
  });

  it('sends again what a process took and did not finish', async () => {
    await database.database.write((tx) =>
      tx.run("INSERT INTO mail_queue VALUES ('lost', 'a@x.org', 's', 't', 'h', '{}', ?, ?, ?, 1)", [
        clock.nowMs(),
        clock.nowMs() + 1e9,
        clock.nowMs() + 300_000,
      ]),
    );
    const server = await smtp();
    mailer(server.port);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.received).toHaveLength(0);
    await pass(340_000);
    await inTime(async () => (await waiting()) === 0);
    expect(server.received.map(({ mail }) => mail.messageId)).toEqual(['<lost@hs.example.org>']);
  });

  const stopWithOneLeft = async (stopping: Mailer): Promise<void> => {
    let isStopped = false;
    const stopped = stopping.stop().then(() => (isStopped = true));
    await inTime(() => isStopped);
    await stopped;
    expect(await waiting()).toBe(1);
  };

  it('stops without a mail server that does not answer, and sends the mail later', async () => {
    let isSilent = true;
    const { port, received } = await smtp({ onMailFrom: (_address, _session, done) => isSilent || done() });
    const first = mailer(port);
    await first.send(request);
    await eventually(async () => (await database.database.query('SELECT 1 FROM mail_queue WHERE attempts > 0')).length);
    await stopWithOneLeft(first);
    isSilent = false;
    mailer(port);
    await pass(300_000);
    await inTime(() => received.length > 0);
  });

  it('sends nothing twice that was taken while it stopped, beside a mail that is not answered', async () => {
    let isSilent = true;
    const { port, received } = await smtp({
      onRcptTo: ({ address }, _session, done) => (isSilent && address.startsWith('slow')) || done(),
    });
    const first = mailer(port);
    await database.database.write(async (tx) => {
      for (const to of ['slow@example.org', 'alice@example.org']) await first.queue(tx, { ...request, to });
    });
    await inTime(() => received.length === 1);
    await stopWithOneLeft(first);
    isSilent = false;
    mailer(port);
    await pass(300_000);
    await inTime(() => received.length === 2);
    expect(received.map(({ recipients }) => recipients[0])).toEqual(['alice@example.org', 'slow@example.org']);
  });

  it('gives up what is refused for good, and what grows too old', async () => {
    const answers = [550, 451, 451, 451];
    const server = await smtp({
      onRcptTo: (_address, _session, done) => {
        const responseCode = answers.shift();
        done(responseCode === undefined ? null : Object.assign(new Error('No'), { responseCode }));
      },
    });
    const sender = mailer(server.port);
    await sender.send(request);
    await settled(0);
    expect([server.attempts(), server.received.length]).toEqual([1, 0]);

    await sender.send({ ...request, expiresInMs: 250_000 });
    await eventually(() => server.attempts() === 2);
    await pass(50_000);
    expect([server.attempts(), await waiting()]).toEqual([2, 1]);
    await pass(30_000);
    await inTime(() => server.attempts() === 3);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(await waiting()).toBe(1);
    await pass(130_000);
    await inTime(async () => (await waiting()) === 0);
    expect([server.attempts(), server.received.length]).toEqual([4, 0]);
    expect(logger.lines.filter(({ message }) => message.includes('given up'))).toHaveLength(2);
  });

  it('sends each mail once, by however many processes', async () => {
    const server = await smtp();
    const many = Array.from({ length: 40 }, (_, i) => ({ ...request, to: `user${i}@example.org` }));
    const senders = [
      mailer(server.port),
      mailer(server.port, {}, kind === 'sqlite' ? database.database : await database.reopen(clock)),
    ];
    await Promise.all(many.map((one, i) => senders[i % 2]!.send(one)));
    await settled(0);
    expect(new Set(server.received.map(({ recipients }) => recipients[0])).size).toBe(40);
    expect(server.received).toHaveLength(40);
  });

  it('sends nothing in the clear where TLS is required', async () => {
    const plain = await smtp({ hideSTARTTLS: true, disabledCommands: ['STARTTLS'] });
    await mailer(plain.port, { requireTls: true }).send(request);
    await eventually(() => logger.lines.some(({ message }) => message.includes('tried again')));
    expect(plain.attempts()).toBe(0);
    expect(await waiting()).toBe(1);
  });

  it('does not trust a certificate of another name', async () => {
    const server = await smtp();
    await mailer(server.port, { tlsName: 'mail.example.org' }).send(request);
    await eventually(() => logger.lines.some(({ message }) => message.includes('tried again')));
    expect(server.attempts()).toBe(0);
  });

  it('speaks without TLS or with TLS from the start, as the settings say', async () => {
    const plain = await smtp();
    await mailer(plain.port, { enableTls: false }).send(request);
    await settled(0);
    expect(plain.received.map(({ secure }) => secure)).toEqual([false]);
    for (const one of running.splice(0)) await one.stop();
    const secure = await smtp({ secure: true });
    await mailer(secure.port, { forceTls: true }).send(request);
    await settled(0);
    expect(secure.received.map((one) => one.secure)).toEqual([true]);
  });

  it('fills in subjects', () => {
    const sender = mailer(1);
    expect(sender.subject('email_validation')).toBe('[hs.example.org] Validate your email');
    expect(sender.subject('invite_from_person_to_room', { person: 'Eve\r\nBcc: x %(app)s', room: 'R' })).toBe(
      '[Nest] Eve Bcc: x %(app)s has invited you to join the R room on Nest...',
    );
  });
});

describe('mail settings', () => {
  it('are those of the field', () => {
    expect(mailerOptionsOf(Config.fromObject({}))).toBeUndefined();
    const options = mailerOptionsOf(
      Config.fromObject({
        email: {
          notif_from: 'a@b.org',
          smtp_host: 'mail',
          force_tls: true,
          password_reset_template_html: 'mine.html',
          subjects: { password_reset: 'New password' },
        },
      }),
    );
    expect(options).toMatchObject({
      host: 'mail',
      port: 465,
      forceTls: true,
      templates: { password_reset: { html: 'mine.html', text: 'password_reset.txt' } },
      subjects: { password_reset: 'New password' },
    });
  });

  it('accept plain addresses only', () => {
    expect(
      ['a@b.org', 'a.b+c@sub.example.org', "o'neil@x.org", 'ü@bücher.example', 'a@localhost'].filter(
        (one) => !isMailAddress(one),
      ),
    ).toEqual([]);
  });
});
