import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
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

/** Speaks as much of SMTP with one client as sending mail takes. @spec RFC 5321 */
function receive(socket: Socket, arrived: (mail: TestMail) => void): void {
  let recipients: string[] = [];
  let data: string[] | undefined;
  let rest = '';
  const say = (line: string): void => void socket.write(`${line}\r\n`);
  const hear = (line: string): void => {
    if (data) {
      if (line !== '.') return void data.push(line.replace(/^\./, ''));
      const raw = data.join('\r\n');
      arrived({ recipients, raw, text: decoded(raw) });
      data = undefined;
      return say('250 taken');
    }
    const command = line.slice(0, 4).toUpperCase();
    if (command === 'DATA') {
      data = [];
      return say('354 go on, and end with a dot');
    }
    if (command === 'MAIL') recipients = [];
    if (command === 'RCPT') recipients.push(/<([^>]*)>/.exec(line)?.[1] ?? '');
    say(command === 'QUIT' ? '221 bye' : '250 mail.test');
    if (command === 'QUIT') socket.end();
  };
  socket.setEncoding('utf8');
  socket.on('error', () => {});
  socket.on('data', (piece: string) => {
    const lines = (rest + piece).split('\r\n');
    rest = lines.pop() ?? '';
    lines.forEach(hear);
  });
  say('220 mail.test');
}

/**
 * Starts a mail server that keeps what it gets.
 *
 * ```ts
 * const sink = await startMailSink();
 * const homeserver = await createTestHomeserver({ settings: { email: sink.settings } });
 * // ... whatever sends a mail
 * expect((await sink.next('alice@example.org')).text).toContain('https://');
 * ```
 */
export async function startMailSink(): Promise<MailSink> {
  const mails: TestMail[] = [];
  const given = new Set<TestMail>();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    receive(socket, (mail) => void mails.push(mail));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    settings: { smtp_host: '127.0.0.1', smtp_port: port, notif_from: '%(app)s <rookery@rookery.test>' },
    mails,
    async next(address) {
      const mail = await eventually(() => mails.find((one) => !given.has(one) && one.recipients.includes(address)));
      given.add(mail);
      return mail;
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
