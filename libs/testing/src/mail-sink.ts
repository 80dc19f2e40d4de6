import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import { eventually } from './eventually.js';

/** A mail as it arrived. */
export interface TestMail {
  readonly recipients: readonly string[];
  /** As it came over the wire. */
  readonly raw: string;
  /** Headers and parts in plain letters: what `quoted-printable` hides, links above all, can be found here. */
  readonly text: string;
}

/** A mail server for tests, on the loopback address. */
export interface MailSink {
  /** For the setting `email`. */
  readonly settings: { readonly smtp_host: string; readonly smtp_port: number; readonly notif_from: string };
  /** All mails so far, in the order of arrival. */
  readonly mails: readonly TestMail[];
  /** The next mail to an address; each is given once. Waits for it. */
  next(address: string): Promise<TestMail>;
  stop(): Promise<void>;
}

/** What `quoted-printable` wrote, as the text that it was. */
const decoded = (raw: string): string =>
  raw
    .replaceAll(/=\r?\n/g, '')
    .replaceAll(/(?:=[\dA-F]{2})+/g, (bytes) => Buffer.from(bytes.replaceAll('=', ''), 'hex').toString());

/**
 * Starts a mail server that keeps what it gets.
 *
 * ```ts
 * const sink = await startMailSink();
 * const homeserver = await createTestHomeserver({ settings: { email: sink.settings } });
 * // ... whatever sends a mail
 * expect((await sink.next('alice@example.org')).text).toContain('https://');
 * ```
 * @param onMail is told of each mail before its sender hears that it was taken
 */
export async function startMailSink(onMail?: (mail: TestMail) => void | Promise<void>): Promise<MailSink> {
  const mails: TestMail[] = [];
  const given = new Set<TestMail>();
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS', 'AUTH'],
    // Whoever is still connected at the end is not waited for.
    closeTimeout: 1,
    onData: (stream, session, done) => {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const raw = Buffer.concat(chunks).toString();
        const mail = { recipients: session.envelope.rcptTo.map(({ address }) => address), raw, text: decoded(raw) };
        mails.push(mail);
        Promise.resolve(onMail?.(mail)).then(() => done(), done);
      });
    },
  });
  server.on('error', () => {});
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  const { port } = server.server.address() as AddressInfo;
  return {
    settings: { smtp_host: '127.0.0.1', smtp_port: port, notif_from: '%(app)s <rookery@rookery.test>' },
    mails,
    async next(address) {
      const mail = await eventually(() => mails.find((one) => !given.has(one) && one.recipients.includes(address)));
      given.add(mail);
      return mail;
    },
    stop: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
