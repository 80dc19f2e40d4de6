import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RequestAuthenticator } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { AccountApi, ProfileInfo, ModuleRequester, Threepid, UserInfo } from '@rookery/module-api';
import { requesterForModules } from '@rookery/module-host';
import { Config } from '@rookery/platform';
import {
  type Account,
  accountsAfter,
  AccountService,
  ExternalIds,
  isLocalUser,
  ProfileService,
  qualifyUserId,
  ThreepidService,
} from '@rookery/users';
import { inboundOf } from '../web/inbound.js';
import { checkText } from './check-text.js';

const usersPerPage = 500;

/** What modules may know of accounts. */
@Injectable()
export class ModuleAccountLookups {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly profiles: ProfileService,
    private readonly threepids: ThreepidService,
    private readonly externalIds: ExternalIds,
    private readonly authenticator: RequestAuthenticator,
  ) {}

  async getUserinfoById(userId: string): Promise<UserInfo | undefined> {
    const account = await this.accounts.find(userId);
    return account && infoOf(account);
  }

  async getUserByExternalId(authProviderId: string, remoteUserId: string): Promise<string | undefined> {
    checkText(authProviderId, 'The provider');
    checkText(remoteUserId, 'The id at the provider');
    return this.externalIds.userOf(authProviderId, remoteUserId);
  }

  async getUserByThreepid(medium: string, address: string): Promise<string | undefined> {
    for (const text of [medium, address]) checkText(text, 'Each part of an address');
    return this.threepids.userOf(medium, address);
  }

  async *listUsers(): AsyncGenerator<UserInfo> {
    for (let after = ''; ;) {
      const page = await accountsAfter(this.database, after, usersPerPage);
      for (const account of page) yield infoOf(account);
      if (page.length < usersPerPage) return;
      after = page.at(-1)!.userId;
    }
  }

  async getUserByReq(...[request, options = {}]: Parameters<AccountApi['getUserByReq']>): Promise<ModuleRequester> {
    const { allowGuest = false, allowExpired = false } = options;
    const access = { auth: 'required', guests: allowGuest, expired: allowExpired } as const;
    const requester = await this.authenticator.authenticate(inboundOf(request), access);
    if (!requester) throw MatrixError.missingToken();
    return requesterForModules(requester);
  }

  async isUserAdmin(userId: string): Promise<boolean> {
    return (await this.accounts.find(userId))?.isAdmin ?? false;
  }

  getQualifiedUserId(username: string): string {
    return qualifyUserId(username, this.config.serverName);
  }

  isMine(id: string): boolean {
    return id.includes(':') && id.slice(id.indexOf(':') + 1) === this.config.serverName;
  }

  async getProfileForUser(localpart: string): Promise<ProfileInfo> {
    return profileOf(await this.profiles.get(qualifyUserId(localpart, this.config.serverName)));
  }

  async getThreepidsForUser(userId: string): Promise<readonly Threepid[]> {
    return (await this.threepids.list(userId)).map(({ medium, address }) => Object.freeze({ medium, address }));
  }

  async checkUserExists(userId: string): Promise<string | undefined> {
    const { serverName } = this.config;
    if (!isLocalUser(qualifyUserId(userId, serverName), serverName)) return undefined;
    return (await this.accounts.findByName(userId))?.userId;
  }

  async checkUsername(localpart: string): Promise<void> {
    await this.accounts.checkAvailable(localpart);
  }
}

const infoOf = (account: Account): UserInfo =>
  Object.freeze({
    userId: account.userId,
    appserviceId: account.appserviceId,
    consentServerNoticeSent: account.consentNoticeSent,
    consentVersion: account.consentVersion,
    consentTs: account.consentMs,
    userType: account.userType,
    creationTs: account.createdMs,
    isAdmin: account.isAdmin,
    isDeactivated: account.deactivated,
    isGuest: account.isGuest,
    isShadowBanned: account.shadowBanned,
    approved: account.approved,
    locked: account.locked,
    suspended: account.suspended,
  });

const profileOf = (profile: { readonly displayname?: string; readonly avatar_url?: string } | undefined): ProfileInfo =>
  Object.freeze({ displayName: profile?.displayname, avatarUrl: profile?.avatar_url });
