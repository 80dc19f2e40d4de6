import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { AccountApi } from '@rookery/module-api';
import { Clock } from '@rookery/platform';
import {
  AccountService,
  canonicalAddress,
  DeactivationService,
  ExternalIds,
  ProfileService,
  ThreepidService,
} from '@rookery/users';
import { checkText } from './check-text.js';
import { LocalAccounts } from './local-accounts.js';

const longestDisplayName = 256;
const maxEmails = 20;

/** Modules act on their own account, which is told to other modules; they may what an administrator may. */
export const byModule = { byAdmin: true, byModule: true };

/** What a module gives as a name for people to see; '' is none. @throws MatrixError 400 `M_INVALID_PARAM` */
function displayNameIn(text: string): string | undefined {
  if (typeof text !== 'string' || text.length > longestDisplayName)
    throw MatrixError.invalidParam(`A display name is a text of at most ${longestDisplayName} characters`);
  if (text.includes('\0') || !text.isWellFormed())
    throw MatrixError.invalidParam('The display name holds characters that cannot be stored');
  return text === '' ? undefined : text;
}

/** What modules may change about accounts. */
@Injectable()
export class ModuleAccountChanges {
  constructor(
    private readonly clock: Clock,
    private readonly local: LocalAccounts,
    private readonly accounts: AccountService,
    private readonly profiles: ProfileService,
    private readonly threepids: ThreepidService,
    private readonly deactivation: DeactivationService,
    private readonly externalIds: ExternalIds,
  ) {}

  async setUserAdmin(userId: string, admin: boolean): Promise<void> {
    this.local.assertLocal(userId);
    await this.accounts.setFlags(userId, { isAdmin: admin });
  }

  async setDisplayname(userId: string, displayName: string): Promise<void> {
    await this.local.get(userId);
    await this.profiles.update(
      userId,
      { displayname: displayNameIn(displayName) },
      { origin: byModule, byAdmin: true },
    );
  }

  async registerUser(...[localpart, options = {}]: Parameters<AccountApi['registerUser']>): Promise<string> {
    const { emails = [], admin = false } = options;
    const displayName = displayNameIn(options.displayName ?? '');
    if (emails.length > maxEmails) throw MatrixError.invalidParam(`An account has at most ${maxEmails} addresses`);
    const name = await this.accounts.checkAvailable(localpart);
    const validatedMs = this.clock.nowMs();
    const addresses = new Set(emails.map((email) => canonicalAddress('email', email)));
    const threepids = [...addresses].map((address) => ({ medium: 'email', address, validatedMs }));
    return this.accounts.register({ localpart: name, displayName, isAdmin: admin, threepids, origin: byModule });
  }

  async recordUserExternalId(authProviderId: string, remoteUserId: string, registeredUserId: string): Promise<void> {
    checkText(authProviderId, 'The provider');
    checkText(remoteUserId, 'The id at the provider');
    await this.local.get(registeredUserId);
    if (!(await this.externalIds.record(authProviderId, remoteUserId, registeredUserId)))
      throw MatrixError.externalIdInUse();
  }

  async forgetUserExternalId(authProviderId: string, remoteUserId: string, userId: string): Promise<void> {
    checkText(authProviderId, 'The provider');
    checkText(remoteUserId, 'The id at the provider');
    this.local.assertLocal(userId);
    await this.externalIds.forget(authProviderId, remoteUserId, userId);
  }

  async storeRemote3pidAssociation(userId: string, medium: string, address: string, idServer: string): Promise<void> {
    for (const text of [medium, address, idServer]) checkText(text, 'Each part of an association');
    await this.local.get(userId);
    await this.threepids.published(userId, medium, address, idServer);
  }

  async deactivateUser(...[userId, { erase = false } = {}]: Parameters<AccountApi['deactivateUser']>): Promise<void> {
    await this.local.get(userId);
    await this.deactivation.deactivate(userId, erase, true, byModule);
  }
}
