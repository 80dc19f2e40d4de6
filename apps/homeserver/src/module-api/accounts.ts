import type { Database } from '@rookery/database';
import type { RequestAuthenticator } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { AccountApi, AccountDataManager, ProfileInfo, UserIpAndAgent } from '@rookery/module-api';
import { frozenCopy } from '@rookery/module-host';
import type { Clock, Config } from '@rookery/platform';
import {
  type AccountDataService,
  type AccountService,
  activeUsersByService,
  addressesOf,
  type ClientActivity,
  type DeactivationService,
  isLocalUser,
  type LoginService,
  type ProfileService,
  qualifyUserId,
  recordExternalId,
  type SessionService,
  type ThreepidService,
  type UserAddress,
} from '@rookery/users';
import type { LocalAccounts } from './module-requester.js';
import type { SsoCompletion } from './sso-completion.js';
import { inboundOf } from './web-resources.js';

/** What accounts are reached through. */
export interface AccountParts {
  readonly database: Database;
  readonly config: Config;
  readonly clock: Clock;
  readonly accounts: AccountService;
  readonly local: LocalAccounts;
  readonly sessions: SessionService;
  readonly logins: LoginService;
  readonly profiles: ProfileService;
  readonly threepids: ThreepidService;
  readonly accountData: AccountDataService;
  readonly deactivation: DeactivationService;
  readonly activity: ClientActivity;
  readonly authenticator: RequestAuthenticator;
  readonly sso: SsoCompletion;
}

const defaultLoginTokenMs = 120_000;
const longestLoginTokenMs = 86_400_000;
const longestDisplayName = 256;
const maxEmails = 20;
const longestProvider = 255;

/** Modules act on their own account, which is told to other modules. */
const origin = { byAdmin: true };

/** The part of the module API that is about accounts. */
export function accountCapabilities(parts: AccountParts): Omit<AccountApi, 'completeSsoLogin'> {
  const { database, config, clock, accounts, local, sessions, profiles, threepids } = parts;
  const { serverName } = config;

  return {
    async getUserinfoById(userId) {
      const account = await accounts.find(userId);
      if (!account) return undefined;
      return Object.freeze({
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
    },

    async getUserByReq(request, { allowGuest = false, allowExpired = false } = {}) {
      const access = { auth: 'required', guests: allowGuest, expired: allowExpired } as const;
      const requester = await parts.authenticator.authenticate(inboundOf(request), access);
      if (!requester) throw MatrixError.missingToken();
      return Object.freeze({
        userId: requester.userId,
        deviceId: requester.deviceId,
        isGuest: requester.isGuest,
        isAdmin: requester.isAdmin,
        shadowBanned: requester.shadowBanned,
        appserviceId: requester.appserviceId,
      });
    },

    isUserAdmin: async (userId) => (await accounts.find(userId))?.isAdmin ?? false,

    async setUserAdmin(userId, admin) {
      local.assertLocal(userId);
      await accounts.setFlags(userId, { isAdmin: admin });
    },

    getQualifiedUserId: (username) => qualifyUserId(username, serverName),

    isMine: (id) => id.includes(':') && id.slice(id.indexOf(':') + 1) === serverName,

    getProfileForUser: async (localpart) => profileOf(await profiles.get(qualifyUserId(localpart, serverName))),

    async setDisplayname(userId, displayName) {
      await local.get(userId);
      if (typeof displayName !== 'string' || displayName.length > longestDisplayName) {
        throw MatrixError.invalidParam(`A display name is a text of at most ${longestDisplayName} characters`);
      }
      if (displayName.includes('\0') || !displayName.isWellFormed()) {
        throw MatrixError.invalidParam('The display name holds characters that cannot be stored');
      }
      const change = { displayname: displayName === '' ? undefined : displayName };
      await profiles.update(userId, change, { origin, byAdmin: true });
    },

    getThreepidsForUser: async (userId) =>
      (await threepids.list(userId)).map(({ medium, address }) => Object.freeze({ medium, address })),

    async checkUserExists(userId) {
      if (!isLocalUser(qualifyUserId(userId, serverName), serverName)) return undefined;
      return (await accounts.findByName(userId))?.userId;
    },

    async checkUsername(localpart) {
      await accounts.checkAvailable(localpart);
    },

    async registerUser(localpart, { displayName, emails = [], admin = false } = {}) {
      if (emails.length > maxEmails) throw MatrixError.invalidParam(`An account has at most ${maxEmails} addresses`);
      const name = await accounts.checkAvailable(localpart);
      for (const email of emails) {
        if ((await threepids.userOf('email', email)) !== undefined) {
          throw MatrixError.threepidInUse();
        }
      }
      const userId = await accounts.register({ localpart: name, displayName, isAdmin: admin, origin });
      for (const email of emails) await threepids.add(userId, 'email', email, clock.nowMs(), origin);
      return userId;
    },

    async registerDevice(userId, deviceId, initialDisplayName) {
      const { deactivated } = await local.get(userId);
      if (deactivated) throw MatrixError.userDeactivated();
      const session = await sessions.open({ userId, deviceId, initialDisplayName });
      return Object.freeze({
        deviceId: session.deviceId,
        accessToken: session.accessToken,
        accessTokenExpiresAtMs: session.expiresInMs === undefined ? undefined : clock.nowMs() + session.expiresInMs,
        refreshToken: session.refreshToken,
      });
    },

    async invalidateAccessToken(accessToken) {
      await sessions.closeByToken(accessToken, { byModule: true });
    },

    async recordUserExternalId(authProviderId, remoteUserId, registeredUserId) {
      checkText(authProviderId, 'The provider');
      checkText(remoteUserId, 'The id at the provider');
      await local.get(registeredUserId);
      const free = await database.write((tx) => recordExternalId(tx, authProviderId, remoteUserId, registeredUserId), {
        name: 'user_external_id',
      });
      if (!free) throw MatrixError.externalIdInUse();
    },

    async createLoginToken(userId, durationInMs = defaultLoginTokenMs, authProviderId, authProviderSessionId) {
      await local.get(userId);
      if (!(durationInMs >= 1 && durationInMs <= longestLoginTokenMs)) {
        throw new RangeError(`A login token lasts 1 to ${longestLoginTokenMs} milliseconds`);
      }
      const provider =
        authProviderId === undefined ? undefined : { id: authProviderId, sessionId: authProviderSessionId ?? '' };
      return parts.logins.createToken(userId, Math.floor(durationInMs), provider);
    },

    completeSsoLoginAsync: (...args) => parts.sso.complete(...args),

    async storeRemote3pidAssociation(userId, medium, address, idServer) {
      for (const text of [medium, address, idServer]) checkText(text, 'Each part of an association');
      await local.get(userId);
      await threepids.published(userId, medium, address, idServer);
    },

    async getUserIpAndAgents(userId, sinceMs = 0) {
      await parts.activity.flush();
      return latestByPlace(await addressesOf(database, userId, sinceMs));
    },

    async getMonthlyActiveUsersByService(startMs = 0, endMs = clock.nowMs()) {
      await parts.activity.flush();
      const active = await activeUsersByService(database, startMs, endMs);
      return active.map(({ service, userId }) => [service, userId] as const);
    },

    async deactivateUser(userId, { erase = false } = {}) {
      await local.get(userId);
      await parts.deactivation.deactivate(userId, erase, true, origin);
    },

    accountDataManager: accountDataManager(parts),
  };
}

function accountDataManager({ accountData, local }: AccountParts): AccountDataManager {
  return Object.freeze({
    async getGlobal(userId: string, dataType: string) {
      local.assertLocal(userId);
      return frozenCopy(await accountData.find(userId, undefined, dataType));
    },
    async putGlobal(userId: string, dataType: string, content: Readonly<Record<string, unknown>>) {
      await local.get(userId);
      if (!isJsonObject(content)) throw MatrixError.badJson('The content has to be an object');
      await accountData.setByClient(userId, undefined, dataType, content as JsonObject, origin);
    },
  });
}

const profileOf = (profile: { readonly displayname?: string; readonly avatar_url?: string } | undefined): ProfileInfo =>
  Object.freeze({ displayName: profile?.displayname, avatarUrl: profile?.avatar_url });

/** One entry per address and agent; the rows come newest first. */
function latestByPlace(rows: readonly UserAddress[]): UserIpAndAgent[] {
  const places = new Map<string, UserIpAndAgent>();
  for (const row of rows) {
    const place = `${row.ip}\n${row.user_agent}`;
    if (!places.has(place)) places.set(place, { ip: row.ip, userAgent: row.user_agent, lastSeenMs: row.last_seen });
  }
  return [...places.values()];
}

function checkText(text: string, what: string): void {
  if (typeof text !== 'string' || text === '' || text.length > longestProvider || text.includes('\0')) {
    throw MatrixError.invalidParam(`${what} is a text of 1 to ${longestProvider} characters`);
  }
}
