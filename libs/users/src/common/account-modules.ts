import { Injectable } from '@nestjs/common';
import type {
  AuthSuccess,
  CallbackContext,
  ProfileInfo,
  RenewalResult,
  RequestInfo,
  Threepid,
  UiaResults,
} from '@rookery/module-api';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import type { Requester, RequestOrigin } from '@rookery/platform';

/** Where a call to a module comes from, in the words of this lib. */
export interface Origin {
  readonly requester?: Requester | undefined;
  readonly request?: Pick<RequestOrigin, 'requestId' | 'ip' | 'userAgent'> | undefined;
  readonly byAdmin?: boolean | undefined;
  /** A module does it. */
  readonly byModule?: boolean | undefined;
}

const contextOf = ({ requester, request, byAdmin, byModule }: Origin): CallbackContext =>
  callbackContext(requester, {
    ...(byModule
      ? { source: 'module' as const }
      : byAdmin
        ? { source: 'admin' as const }
        : requester === undefined && request !== undefined
          ? { source: 'client' as const }
          : {}),
    requestId: request?.requestId,
    ip: request?.ip,
    userAgent: request?.userAgent,
  });

/** A login that asks for a device. */
export interface LoginCheck {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly initialDisplayName: string | undefined;
  readonly authProviderId: string | undefined;
}

/** A registration that passed interactive auth. */
export interface RegistrationCheck {
  readonly email: Threepid | undefined;
  readonly username: string | undefined;
  /** All that led to it; the one that came, unless told. */
  readonly requests?: readonly RequestInfo[];
  readonly authProviderId: string | undefined;
}

/** What modules are asked and told about accounts. With no module, each call costs a property check. */
@Injectable()
export class AccountModules {
  constructor(private readonly modules: ModuleDispatcher) {}

  /** Whether a module says which accounts have expired. */
  get judgesExpiry(): boolean {
    return this.modules.has('isUserExpired');
  }

  /** `undefined` where no module has an opinion. */
  async isUserExpired(userId: string, origin: Origin): Promise<boolean | undefined> {
    if (!this.modules.has('isUserExpired')) return undefined;
    return this.modules.provide('isUserExpired', contextOf(origin), userId);
  }

  /** @returns whether a module takes care of it */
  async legacySendMail(userId: string, origin: Origin): Promise<boolean> {
    if (!this.modules.has('onLegacySendMail')) return false;
    await this.modules.provide('onLegacySendMail', contextOf(origin), userId);
    return true;
  }

  /** `undefined` where no module takes care of it. */
  async legacyRenew(token: string, origin: Origin): Promise<RenewalResult | undefined> {
    if (!this.modules.has('onLegacyRenew')) return undefined;
    return this.modules.provide('onLegacyRenew', contextOf(origin), token);
  }

  /** `undefined` where no module takes care of it. */
  async legacyAdminRequest(body: Readonly<Record<string, unknown>>, origin: Origin): Promise<number | undefined> {
    if (!this.modules.has('onLegacyAdminRequest')) return undefined;
    return this.modules.provide('onLegacyAdminRequest', contextOf(origin), body);
  }

  /**
   * @returns whether the account is to be made and shadow-banned
   * @throws MatrixError as the module says, by default 403 `M_FORBIDDEN`
   */
  async checkRegistration(check: RegistrationCheck, origin: Origin): Promise<boolean> {
    if (!this.modules.has('checkRegistrationForSpam')) return false;
    const { request } = origin;
    const verdict = await this.modules.gate(
      'checkRegistrationForSpam',
      contextOf(origin),
      check.email,
      check.username,
      check.requests ?? (request ? [{ ip: request.ip, userAgent: request.userAgent }] : []),
      check.authProviderId,
    );
    assertAllowed(verdict);
    return verdict.shadowBan;
  }

  /** @throws MatrixError as the module says, by default 403 `M_FORBIDDEN` */
  async checkLogin(login: LoginCheck, origin: Origin): Promise<void> {
    if (!this.modules.has('checkLoginForSpam')) return;
    const info: RequestInfo[] = origin.request ? [{ ip: origin.request.ip, userAgent: origin.request.userAgent }] : [];
    assertAllowed(
      await this.modules.gate(
        'checkLoginForSpam',
        contextOf(origin),
        login.userId,
        login.deviceId,
        login.initialDisplayName,
        info,
        login.authProviderId,
      ),
    );
  }

  /** @throws MatrixError 403 */
  async checkDeactivation(userId: string, byAdmin: boolean, origin: Origin): Promise<void> {
    if (!this.modules.has('checkCanDeactivateUser')) return;
    assertAllowed(await this.modules.gate('checkCanDeactivateUser', contextOf(origin), userId, byAdmin));
  }

  /** @throws MatrixError as the module says, by default 403 `M_THREEPID_DENIED` */
  async checkThreepid(medium: string, address: string, registration: boolean, origin: Origin): Promise<void> {
    if (!this.modules.has('is3pidAllowed')) return;
    assertAllowed(await this.modules.gate('is3pidAllowed', contextOf(origin), medium, address, registration));
  }

  async usernameForRegistration(
    results: UiaResults,
    params: Readonly<Record<string, unknown>>,
    origin: Origin,
  ): Promise<string | undefined> {
    if (!this.modules.has('getUsernameForRegistration')) return undefined;
    return this.modules.provide('getUsernameForRegistration', contextOf(origin), results, params);
  }

  async displayNameForRegistration(
    results: UiaResults,
    params: Readonly<Record<string, unknown>>,
    origin: Origin,
  ): Promise<string | undefined> {
    if (!this.modules.has('getDisplaynameForRegistration')) return undefined;
    return this.modules.provide('getDisplaynameForRegistration', contextOf(origin), results, params);
  }

  /** The login types that modules check, with the fields each needs. */
  get loginTypes(): ReadonlyMap<string, { readonly fields: readonly string[] }> {
    return this.modules.loginTypes;
  }

  /** Asks the modules that check a login type. @returns nothing when none of them knows the proof */
  async checkAuth(
    username: string,
    loginType: string,
    body: Readonly<Record<string, unknown>>,
    origin: Origin,
  ): Promise<AuthSuccess | undefined> {
    const fields = this.modules.loginTypes.get(loginType)?.fields;
    if (!fields?.every((field) => body[field] !== undefined)) return undefined;
    return this.modules.checkAuth(
      contextOf(origin),
      username,
      loginType,
      Object.fromEntries(fields.map((field) => [field, body[field]])),
    );
  }

  async checkThreepidAuth(
    medium: string,
    address: string,
    password: string,
    origin: Origin,
  ): Promise<AuthSuccess | undefined> {
    if (!this.modules.has('check3pidAuth')) return undefined;
    return this.modules.check3pidAuth(contextOf(origin), medium, address, password);
  }

  async registered(userId: string, origin: Origin): Promise<void> {
    if (this.modules.has('onUserRegistration'))
      await this.modules.notify('onUserRegistration', contextOf(origin), userId);
  }

  async loggedIn(
    userId: string,
    authProviderType: string | undefined,
    authProviderId: string | undefined,
    origin: Origin,
  ): Promise<void> {
    if (this.modules.has('onUserLogin'))
      await this.modules.notify('onUserLogin', contextOf(origin), userId, authProviderType, authProviderId);
  }

  /** Whether anybody wants to know of sessions that end. */
  get followLogouts(): boolean {
    return this.modules.has('onLoggedOut');
  }

  /** @param accessToken as given out, where the request carried it; else empty, since only hashes are stored */
  async loggedOut(userId: string, deviceId: string | undefined, accessToken: string, origin: Origin): Promise<void> {
    if (this.modules.has('onLoggedOut'))
      await this.modules.notify('onLoggedOut', contextOf(origin), userId, deviceId, accessToken);
  }

  async profileUpdated(
    userId: string,
    profile: ProfileInfo,
    byAdmin: boolean,
    deactivation: boolean,
    origin: Origin,
  ): Promise<void> {
    if (this.modules.has('onProfileUpdate'))
      await this.modules.notify('onProfileUpdate', contextOf(origin), userId, profile, byAdmin, deactivation);
  }

  async deactivationChanged(userId: string, deactivated: boolean, byAdmin: boolean, origin: Origin): Promise<void> {
    if (this.modules.has('onUserDeactivationStatusChanged'))
      await this.modules.notify('onUserDeactivationStatusChanged', contextOf(origin), userId, deactivated, byAdmin);
  }

  async threepidAdded(userId: string, medium: string, address: string, origin: Origin): Promise<void> {
    if (this.modules.has('onThreepidBind'))
      await this.modules.notify('onThreepidBind', contextOf(origin), userId, medium, address);
    if (this.modules.has('onAddUserThirdPartyIdentifier'))
      await this.modules.notify('onAddUserThirdPartyIdentifier', contextOf(origin), userId, medium, address);
  }

  async threepidRemoved(userId: string, medium: string, address: string, origin: Origin): Promise<void> {
    if (this.modules.has('onRemoveUserThirdPartyIdentifier'))
      await this.modules.notify('onRemoveUserThirdPartyIdentifier', contextOf(origin), userId, medium, address);
  }

  async accountDataUpdated(
    userId: string,
    roomId: string | undefined,
    type: string,
    content: Readonly<Record<string, unknown>>,
    origin: Origin,
  ): Promise<void> {
    if (this.modules.has('onAccountDataUpdated'))
      await this.modules.notify('onAccountDataUpdated', contextOf(origin), userId, roomId, type, content);
  }
}
