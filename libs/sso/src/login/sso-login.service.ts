import { Injectable } from '@nestjs/common';
import type { HttpReply } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { AccountService, ExternalIds, UiaService } from '@rookery/users';
import { SsoError } from '../common/sso-error.js';
import type { SignOn } from '../providers/identity-provider.js';
import { SsoHandover } from './handover.service.js';
import { NewUsers } from './new-users.service.js';
import { SsoPages } from './sso-pages.js';
import { SsoProfiles } from './sso-profiles.service.js';

/** From somebody whom a provider vouches for to an account, or to a confirmed session of interactive auth. */
@Injectable()
export class SsoLogin {
  constructor(
    private readonly externalIds: ExternalIds,
    private readonly accounts: AccountService,
    private readonly uia: UiaService,
    private readonly newUsers: NewUsers,
    private readonly profiles: SsoProfiles,
    private readonly handover: SsoHandover,
    private readonly pages: SsoPages,
  ) {}

  /**
   * @returns what the browser sees next
   * @throws SsoError, MatrixError for pages that tell of them
   */
  async finish(signOn: SignOn): Promise<HttpReply> {
    const { provider, remoteId, purpose, cookies } = signOn;
    const known = await this.externalIds.userOf(provider.id, remoteId);
    if (purpose.kind === 'uia') return this.#confirm(purpose.session, known, cookies);
    const userId = known ?? (await this.#linkExisting(signOn));
    if (userId === undefined) {
      if (!provider.registers)
        throw new SsoError('mapping_error', 'There is no account for you on this server, and none can be made.', 403);
      return this.newUsers.begin(signOn, purpose.redirectUrl);
    }
    // Nobody gets into a closed account, and who was erased does not come back by trying.
    const isClosed = (await this.accounts.find(userId))?.deactivated === true;
    if (!isClosed) await this.profiles.update(userId, signOn);
    return this.handover.complete({
      userId,
      redirectUrl: purpose.redirectUrl,
      provider: { id: provider.id, sessionId: signOn.sessionId },
      extraFields: await signOn.extraFields?.(),
      cookies,
    });
  }

  /** The account of that name, where the settings say that it is the same person's. */
  async #linkExisting(signOn: SignOn): Promise<string | undefined> {
    const localpart = await signOn.existingLocalpart?.();
    if (localpart === undefined || localpart === '' || localpart.startsWith('@')) return undefined;
    const account = await this.accounts.findByName(localpart);
    // Guests have no name, and the users of application services are nobody's.
    if (!account || account.isGuest || account.appserviceId !== undefined) return undefined;
    const { provider, remoteId } = signOn;
    const linked = await this.externalIds.record(provider.id, remoteId, account.userId);
    return linked ? account.userId : this.externalIds.userOf(provider.id, remoteId);
  }

  /** Only the user who began the session confirms it. */
  async #confirm(session: string, userId: string | undefined, cookies: readonly string[]): Promise<HttpReply> {
    const begun = await this.uia.describe(session);
    if (!begun) throw new SsoError('bad_session', 'What you wanted to confirm has expired. Start again in your app.');
    if (userId === undefined || userId !== begun.userId)
      return this.pages.page(403, 'sso_auth_bad_user.html', { user_id_to_verify: begun.userId ?? '' }, { cookies });
    try {
      await this.uia.completeFor(session, 'm.login.sso', userId);
    } catch (error) {
      if (MatrixError.is(error) && error.status === 404) throw new SsoError('bad_session', error.message);
      throw error;
    }
    return this.pages.page(200, 'sso_auth_success.html', {}, { cookies });
  }
}
