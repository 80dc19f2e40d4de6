import { Inject, Injectable, Optional } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { Config } from '@rookery/platform';
import { Mailer } from '@rookery/templates';

/** Writes the mails of this lib, where the server sends mail at all. */
@Injectable()
export class AccountMailer {
  constructor(
    private readonly config: Config,
    @Optional() @Inject(Mailer) private readonly mailer: Mailer | undefined,
  ) {}

  get enabled(): boolean {
    return this.mailer != null;
  }

  /** Queues a mail with a link to follow, as part of a transaction. */
  async queueLink(
    tx: Tx,
    kind: 'registration' | 'add_threepid' | 'password_reset',
    address: string,
    link: string,
  ): Promise<void> {
    const subject = this.#mailer.subject(kind === 'password_reset' ? 'password_reset' : 'email_validation');
    await this.#mailer.queue(tx, { to: address, kind, subject, values: { link } });
  }

  /** Tells whoever reads the mail of an address that somebody tried to register or add it once more. */
  async queueAlreadyInUse(tx: Tx, address: string): Promise<void> {
    await this.#mailer.queue(tx, {
      to: address,
      kind: 'already_in_use',
      subject: this.#mailer.subject('email_already_in_use'),
      values: {},
    });
  }

  /** Tells a user that the account expires, with a link that renews it. */
  async queueExpiry(
    tx: Tx,
    address: string,
    values: { readonly display_name: string; readonly expiration_ts: number; readonly url: string },
  ): Promise<void> {
    const subject = this.config
      .get('account_validity.renew_email_subject')
      .replaceAll('%(app)s', this.config.get('email.app_name'));
    await this.#mailer.queue(tx, { to: address, kind: 'expiry', subject, values });
  }

  get #mailer(): Mailer {
    if (!this.mailer) throw new Error('This server sends no mail');
    return this.mailer;
  }
}
