import type { Database, Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock, Config, Ids, Logger, SettingName, Timer } from '@rookery/platform';
import type { Transporter } from 'nodemailer';
import { isMailAddress, oneLine } from './mail-address.js';
import {
  claimDueMails,
  deleteMails,
  insertMail,
  nextDueMs,
  postponeMails,
  type QueuedMail,
} from './mail-queue.query.js';
import type { Pages } from './pages.js';

/** The mails the server sends, after the settings that name their templates: `email.<kind>_template_html` and `…_text`. */
export type MailKind = 'notif' | 'expiry' | 'password_reset' | 'registration' | 'add_threepid' | 'already_in_use';

const kinds: readonly MailKind[] = [
  'notif',
  'expiry',
  'password_reset',
  'registration',
  'add_threepid',
  'already_in_use',
];

/** Names of the subjects in the settings: `email.subjects.<name>`. */
export type SubjectName = SettingName extends infer N ? (N extends `email.subjects.${infer S}` ? S : never) : never;

/** How long a stop waits for an answer to mails under way, milliseconds: who has taken one and is not heard gets it once more. */
const lastMailMs = 2_500;

/** One mail to write. */
export interface MailRequest {
  /** One plain address. */
  readonly to: string;
  readonly kind: MailKind;
  /** See {@link Mailer.subject}. */
  readonly subject: string;
  /** The template's variables; `app_name` and `server_name` are there. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** Not sent any more after that. Default a day. */
  readonly expiresInMs?: number;
}

/** A mail whose texts are finished. */
export interface WrittenMail extends Pick<MailRequest, 'to' | 'subject' | 'headers' | 'expiresInMs'> {
  readonly html: string;
  readonly text: string;
}

/** How mails leave the server. */
export interface MailerOptions {
  readonly serverName: string;
  readonly appName: string;
  /** `%(app)s` stands for the app's name. */
  readonly from: string;
  readonly host: string;
  readonly port: number;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  /** TLS from the first byte. */
  readonly forceTls: boolean;
  /** Send nothing without TLS. */
  readonly requireTls: boolean;
  /** Use TLS where it is offered. */
  readonly enableTls: boolean;
  /** Name in the server's certificate; the host when absent. */
  readonly tlsName?: string | undefined;
  /** Certificate authority, PEM, beyond the system's. */
  readonly ca?: string | undefined;
  readonly templates: Readonly<Record<MailKind, { readonly html: string; readonly text: string }>>;
  readonly subjects: Readonly<Record<string, string>>;
}

/** The options that the settings decide; `undefined` when the server sends no mail. */
export function mailerOptionsOf(config: Config): MailerOptions | undefined {
  const from = config.get('email.notif_from');
  if (from === undefined) return undefined;
  const forceTls = config.get('email.force_tls');
  const subjects: Record<string, string> = {};
  for (const name of subjectNames) subjects[name] = config.get(`email.subjects.${name}`);
  return {
    serverName: config.serverName,
    appName: config.get('email.app_name'),
    from,
    host: config.get('email.smtp_host'),
    port: config.get('email.smtp_port') ?? (forceTls ? 465 : 25),
    user: config.get('email.smtp_user'),
    password: config.get('email.smtp_pass'),
    forceTls,
    requireTls: config.get('email.require_transport_security'),
    enableTls: config.get('email.enable_tls'),
    tlsName: config.get('email.tlsname'),
    templates: Object.fromEntries(
      kinds.map((kind) => [
        kind,
        { html: config.get(`email.${kind}_template_html`), text: config.get(`email.${kind}_template_text`) },
      ]),
    ) as MailerOptions['templates'],
    subjects,
  };
}

const subjectNames: readonly SubjectName[] = [
  'message_from_person_in_room',
  'message_from_person',
  'messages_from_person',
  'messages_in_room',
  'messages_in_room_and_others',
  'messages_from_person_and_others',
  'invite_from_person',
  'invite_from_person_to_room',
  'invite_from_person_to_space',
  'password_reset',
  'email_validation',
  'email_already_in_use',
];

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function checkedAddress(address: string): string {
  if (!isMailAddress(address)) throw MatrixError.invalidParam('That is not an email address');
  return address;
}

const dayMs = 86_400_000;
/** A mail that a process took and did not finish is due again after that. */
const leaseMs = 300_000;
const firstRetryMs = 60_000;
const longestRetryMs = 3_600_000;
/** Mails under way at once. */
const batchSize = 5;
/** How often the queue is looked at for mails that other processes put there. */
const pollMs = 30_000;

const fill = (pattern: string, values: Readonly<Record<string, string>>): string =>
  pattern.replace(/%\((\w+)\)s/g, (whole, name: string) => (Object.hasOwn(values, name) ? values[name]! : whole));

interface SmtpFailure {
  readonly message: string;
  readonly command?: string;
  readonly responseCode?: number;
}

/** Whether the mail server refused this mail for good; refusals of ourselves (login, sender) are for the operator to mend. */
const isFinal = ({ responseCode = 0, command = '' }: SmtpFailure): boolean =>
  responseCode >= 500 && /^(?:RCPT TO|DATA|BDAT)/.test(command);

/**
 * Sends mails through a queue in the database: a mail outlives a restart and a mail server that is away, and is queued in
 * the transaction of what it tells about. A mail is sent at least once, each time with the same Message-ID.
 */
export class Mailer {
  #transport: Promise<Transporter> | undefined;
  readonly #from: string;
  #running = false;
  #timer: Timer | undefined;
  #work: Promise<void> | undefined;
  #again = false;
  #queued: (kind: MailKind) => void = () => {};

  /** @throws Error when the sender's address is none */
  constructor(
    private readonly options: MailerOptions,
    private readonly pages: Pages,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly logger: Logger,
  ) {
    this.#from = oneLine(fill(options.from, { app: options.appName }));
    if (!this.#from.includes('@')) throw new Error(`holds no mail address: ${this.#from}`);
  }

  /** Calls `fn` with the kind of each mail that was queued, for metrics. It must not throw. */
  onQueued(fn: (kind: MailKind) => void): void {
    this.#queued = fn;
  }

  /** A subject of the settings, in one line, with `%(app)s`, `%(server_name)s` and the given placeholders filled in. */
  subject(name: SubjectName, values: Readonly<Record<string, string>> = {}): string {
    const { appName, serverName, subjects } = this.options;
    return oneLine(fill(subjects[name] ?? '', { app: appName, server_name: serverName, ...values }));
  }

  /**
   * Writes a mail and queues it; it goes out once the transaction is durable.
   * @throws MatrixError 400 `M_INVALID_PARAM` when `to` is not a mail address
   * @throws TemplateError
   */
  async queue(tx: Tx, mail: MailRequest): Promise<void> {
    const { html, text } = this.options.templates[mail.kind];
    tx.afterCommit(() => this.#queued(mail.kind));
    await this.#queueWritten(tx, {
      ...mail,
      // A wrong address is told before a wrong template.
      to: checkedAddress(mail.to),
      html: this.pages.text(html, mail.values),
      text: this.pages.text(text, mail.values),
    });
  }

  /** {@link queue} in a transaction of its own. */
  send(mail: MailRequest): Promise<void> {
    return this.database.write((tx) => this.queue(tx, mail), { name: 'queue_mail' });
  }

  /** Queues a mail whose texts somebody else wrote. @throws MatrixError as {@link queue} */
  sendWritten(mail: WrittenMail): Promise<void> {
    return this.database.write((tx) => this.#queueWritten(tx, mail), { name: 'queue_mail' });
  }

  async #queueWritten(tx: Tx, mail: WrittenMail): Promise<void> {
    const nowMs = this.clock.nowMs();
    const headers = Object.entries(mail.headers ?? {}).map(([name, value]) => [oneLine(name), oneLine(value)]);
    await insertMail(
      tx,
      {
        mail_id: this.ids.letters(24),
        recipient: checkedAddress(mail.to),
        subject: oneLine(mail.subject),
        text_body: mail.text,
        html_body: mail.html,
        headers: JSON.stringify(Object.fromEntries(headers)),
        expires_ms: nowMs + (mail.expiresInMs ?? dayMs),
      },
      nowMs,
    );
    tx.unlessRolledBack(() => this.#wake());
  }

  /** Begins to send what is queued. One process of a server does that; several may. */
  start(): void {
    this.#running = true;
    this.#wake();
  }

  /** Sends no more, and gives a mail server a moment to take the mails under way: those that it does not take in time are sent again later. */
  async stop(): Promise<void> {
    this.#running = false;
    this.#timer?.cancel();
    const ended = new AbortController();
    await Promise.race([this.#work, this.clock.sleep(lastMailMs, ended.signal)]);
    ended.abort();
    (await this.#transport)?.close();
  }

  #wake(): void {
    if (!this.#running) return;
    this.#again = true;
    this.#work ??= this.#run().finally(() => {
      this.#work = undefined;
      if (this.#again) this.#wake();
    });
  }

  async #run(): Promise<void> {
    this.#timer?.cancel();
    let waitMs = pollMs;
    try {
      while (this.#running && this.#again) {
        this.#again = false;
        while (this.#running && (await this.#sendSome()));
      }
      const dueMs = await nextDueMs(this.database);
      if (dueMs !== undefined) waitMs = Math.min(pollMs, Math.max(1000, dueMs - this.clock.nowMs()));
    } catch (err) {
      // What a mail server answers after the stop cannot be noted any more.
      this.logger[this.#running ? 'error' : 'debug']('The mail queue could not be worked off', { err });
    }
    if (this.#running) this.#timer = this.clock.after(waitMs, () => this.#wake());
  }

  /** @returns whether there may be more */
  async #sendSome(): Promise<boolean> {
    const nowMs = this.clock.nowMs();
    const mails = await claimDueMails(this.database, nowMs, nowMs + leaseMs, batchSize);
    if (mails.length === 0) return false;
    // Each is noted when it is known what became of it: a stop does not wait for those that take longest.
    await Promise.all(mails.map(async (mail) => this.#note(mail, await this.#deliver(mail, nowMs), nowMs)));
    return true;
  }

  async #note(mail: QueuedMail, failure: SmtpFailure | undefined, nowMs: number): Promise<void> {
    const { mail_id: id, attempts } = mail;
    const retryMs = Math.min(longestRetryMs, firstRetryMs * 2 ** Math.min(attempts - 1, 20));
    const dueMs = nowMs + retryMs;
    const isOver = failure === undefined || isFinal(failure) || dueMs >= mail.expires_ms;
    if (failure !== undefined) {
      const { message: reason } = failure;
      if (isOver) this.logger.warn('A mail was given up', { mail: id, reason, attempts });
      else this.logger.warn('A mail could not be sent and is tried again', { mail: id, reason, retry_ms: retryMs });
    }
    await this.database.write((tx) => (isOver ? deleteMails(tx, [id]) : postponeMails(tx, [id], dueMs)), {
      name: 'finish_mail',
    });
  }

  async #deliver(mail: QueuedMail, nowMs: number): Promise<SmtpFailure | undefined> {
    if (mail.expires_ms <= nowMs) return { message: 'It was too old to be sent' };
    try {
      const transport = await (this.#transport ??= openTransport(this.options));
      await transport.sendMail({
        messageId: `<${mail.mail_id}@${this.options.serverName.replace(/:\d+$/, '')}>`,
        from: this.#from,
        to: { name: '', address: mail.recipient },
        subject: mail.subject,
        text: mail.text_body,
        html: mail.html_body,
        headers: { 'Auto-Submitted': 'auto-generated', ...(JSON.parse(mail.headers) as Record<string, string>) },
      });
      return undefined;
    } catch (error) {
      const { message, command, responseCode } = error as SmtpFailure;
      // The mail server's words may repeat the address, which does not belong into logs.
      return {
        message: oneLine(message).replaceAll(mail.recipient, '…'),
        ...(command === undefined ? {} : { command }),
        ...(responseCode === undefined ? {} : { responseCode }),
      };
    }
  }
}

/** The way to the mail server. Its library is loaded with the first mail: many servers never send one. */
async function openTransport(options: MailerOptions): Promise<Transporter> {
  const { createTransport } = await import('nodemailer');
  return createTransport({
    host: options.host,
    port: options.port,
    secure: options.forceTls,
    requireTLS: options.requireTls && !options.forceTls,
    ignoreTLS: !options.enableTls,
    ...(options.user === undefined ? {} : { auth: { user: options.user, pass: options.password ?? '' } }),
    tls: {
      ...(options.tlsName === undefined ? {} : { servername: options.tlsName }),
      minVersion: 'TLSv1.2',
      ...(options.ca === undefined ? {} : { ca: options.ca }),
    },
    name: options.serverName.replace(/:\d+$/, ''),
    connectionTimeout: 10_000,
    greetingTimeout: 10_000,
    dnsTimeout: 10_000,
    socketTimeout: 30_000,
    // Templates are data: nothing in them makes the server read files or fetch addresses.
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}
