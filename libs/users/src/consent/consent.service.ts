import { createHmac, timingSafeEqual } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { ownUrl } from '@rookery/http';
import { Database } from '@rookery/database';
import { localpartOf, MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config } from '@rookery/platform';
import { findAccount, setConsent } from '../store/account.query.js';
import { qualifyUserId } from '../common/user-names.js';
import { setReminded, usersToRemind } from './consent-notice.query.js';

/** The server's policy, and who has agreed to which version of it. */
@Injectable()
export class ConsentService {
  readonly #agreed: Cache<string, string>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
  ) {
    this.#agreed = new Cache(config, 'consents', { invalidation: 'never', max: 40_000 });
  }

  /** The version in force; `undefined` where the server has no policy. */
  get version(): string | undefined {
    return this.config.get('user_consent.version');
  }

  /** Whether who registers agrees first (`user_consent.require_at_registration`), having agreed to this version or none. */
  isMissingToRegister(agreed: string | undefined): boolean {
    return this.config.get('user_consent.require_at_registration') && agreed !== this.version;
  }

  /** Where a user reads the policy and agrees to it. The address works for this user only. */
  uriFor(userId: string): string {
    const name = localpartOf(userId);
    return ownUrl(this.config, '_matrix/consent', { u: name, h: this.#sign(name) });
  }

  /**
   * Whether a user still has to agree to the version in force. Users that an application service registered are asked
   * nothing. Costs nothing once they have agreed.
   */
  async isMissing(userId: string): Promise<boolean> {
    const { version } = this;
    if (version === undefined || this.#agreed.get(userId) === version) return false;
    const account = await findAccount(this.database, userId);
    if (account?.consentVersion === version) this.#agreed.set(userId, version);
    return account !== undefined && account.appserviceId === undefined && account.consentVersion !== version;
  }

  /**
   * The user whom a signed address is for.
   * @throws MatrixError 403 `M_FORBIDDEN` (wrong signature), 404 `M_NOT_FOUND` (no such user)
   */
  async userOf(
    name: string,
    signature: string,
  ): Promise<{ readonly userId: string; readonly consentVersion?: string | undefined }> {
    const expected = Buffer.from(this.#sign(name), 'hex');
    const given = /^[0-9a-f]{64}$/i.test(signature) ? Buffer.from(signature, 'hex') : Buffer.alloc(0);
    if (given.length !== expected.length || !timingSafeEqual(given, expected))
      throw MatrixError.forbidden('This address is not valid');
    const account = name.includes('\0')
      ? undefined
      : await findAccount(this.database, qualifyUserId(name, this.config.serverName));
    if (!account) throw MatrixError.noSuchUser();
    return account;
  }

  /** Records that a user agreed. @throws MatrixError 404 `M_NOT_FOUND` for a version that is not in force */
  async agree(userId: string, version: string): Promise<void> {
    if (version !== this.version) throw MatrixError.notFound('Unknown version');
    await this.database.write((tx) => setConsent(tx, userId, version, this.clock.nowMs()), { name: 'consent' });
  }

  /** Which of these users are to be sent a notice of the version in force (`user_consent.server_notice_content`). */
  async toRemind(userIds: readonly string[]): Promise<string[]> {
    const { version } = this;
    if (version === undefined || this.config.get('user_consent.server_notice_content') === undefined) return [];
    const guestsToo = this.config.get('user_consent.send_server_notice_to_guests');
    const unsure = userIds.filter((userId) => this.#agreed.get(userId) !== version);
    if (unsure.length === 0) return [];
    const found = await usersToRemind(this.database, unsure, version);
    return found.filter(({ isGuest }) => guestsToo || !isGuest).map(({ userId }) => userId);
  }

  /** Records that a user was sent the notice of a version: once is enough. */
  async reminded(userId: string, version: string): Promise<void> {
    await this.database.write((tx) => setReminded(tx, userId, version), { name: 'consent_notice' });
  }

  #sign(name: string): string {
    return createHmac('sha256', this.config.get('form_secret') ?? '')
      .update(name)
      .digest('hex');
  }
}
