import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import type { Account } from '../store/account.query.js';
import { AccountService } from '../accounts/account.service.js';
import { assertApproved } from '../accounts/approval.js';
import { AccountModules } from '../common/account-modules.js';
import { assertServerOpen } from '../common/server-gate.js';
import { isLocalUser } from '../common/user-names.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { type LoginMethod, LoginProofs } from './login-proofs.js';
import { type IssuedSession, SessionService } from '../sessions/session.service.js';
import type { TokenCarrier } from '../sessions/access-token.js';

/** What a login asks for beside its proof. */
export interface DeviceRequest {
  readonly deviceId?: string | undefined;
  readonly initialDisplayName?: string | undefined;
  readonly refreshable?: boolean | undefined;
}

/** A further way to log in, added by a higher lib (single sign-on). */
export interface LoginFlow {
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Logins: from a proof to a session. */
@Injectable()
export class LoginService {
  readonly #flows: (() => LoginFlow | undefined)[] = [];

  constructor(
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
    private readonly proofs: LoginProofs,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
    private readonly participation: ParticipationGate,
  ) {}

  /** Adds a flow to the list that clients see; `undefined` while it is not available. */
  addFlow(flow: () => LoginFlow | undefined): void {
    this.#flows.push(flow);
  }

  /** The ways to log in, single sign-on first. */
  flows(): LoginFlow[] {
    const flows: LoginFlow[] = [];
    if (this.config.get('jwt_config.enabled')) flows.push({ type: 'org.matrix.login.jwt' });
    for (const flow of this.#flows) {
      const offered = flow();
      if (offered) flows.push(offered);
    }
    const existing = this.config.get('login_via_existing_session.enabled');
    const sso = flows.some((flow) => flow.type === 'm.login.sso');
    if (sso || existing)
      flows.push(existing ? { type: 'm.login.token', get_login_token: true } : { type: 'm.login.token' });
    for (const type of this.proofs.passwordTypes()) flows.push({ type });
    flows.push({ type: 'm.login.application_service' });
    return flows;
  }

  /**
   * Checks a login and opens a session.
   * @returns the answer for the client
   * @throws MatrixError 400 `M_UNKNOWN` (type), 401, 403 `M_FORBIDDEN`, `M_USER_DEACTIVATED`; 429
   */
  async login(
    request: RequestOrigin & TokenCarrier,
    body: JsonObject & { readonly type: string },
    device: DeviceRequest,
  ): Promise<JsonObject> {
    if (body.type !== 'm.login.application_service') await this.limiter.take('rc_login.address', request.ip);
    return this.complete(await this.proofs.prove(request, body), device, request);
  }

  /**
   * Opens the session of somebody who proved to be a user.
   * @returns the answer for the client
   * @throws MatrixError 401 `M_USER_LOCKED`, 403 `M_FORBIDDEN`, `M_USER_DEACTIVATED`, `M_RESOURCE_LIMIT_EXCEEDED`
   */
  async complete(method: LoginMethod, device: DeviceRequest, request: RequestOrigin): Promise<JsonObject> {
    const { userId } = method;
    if (!method.trusted) await this.limiter.take('rc_login.account', userId.toLowerCase());
    const account = (await this.accounts.find(userId)) ?? (await this.#registerProved(method, request));
    if (!account.isAdmin) assertServerOpen(this.config);
    this.#checkUsable(account);
    await this.participation.assertActive({
      userId,
      appserviceId: method.trusted ? account.appserviceId : undefined,
    });
    const authProviderId = method.authProvider?.id;
    if (!method.trusted) {
      await this.modules.checkLogin(
        { userId, deviceId: device.deviceId, initialDisplayName: device.initialDisplayName, authProviderId },
        { request },
      );
    }
    const session = await this.sessions.open({
      ...{ userId, ...device },
      ...{ authProvider: method.authProvider, proof: method.proof },
    });
    const response = { ...method.fields, ...this.response(session) };
    await this.modules.loggedIn(userId, method.type, authProviderId, { request });
    await method.onLogin?.(response);
    return response;
  }

  /** A session as clients see it. */
  response(session: IssuedSession): JsonObject {
    const baseUrl = this.config.get('public_baseurl');
    const identityServer = this.config.get('default_identity_server');
    // What it would find in /.well-known/matrix/client: a client that takes this for all of it loses nothing.
    const discovery = {
      ...this.config.get('extra_well_known_client_content'),
      'm.homeserver': { base_url: baseUrl },
      ...(identityServer === undefined ? {} : { 'm.identity_server': { base_url: identityServer } }),
    };
    return {
      user_id: session.userId,
      access_token: session.accessToken,
      home_server: this.config.serverName,
      device_id: session.deviceId,
      ...(session.refreshToken === undefined ? {} : { refresh_token: session.refreshToken }),
      ...(session.expiresInMs === undefined ? {} : { expires_in_ms: session.expiresInMs }),
      ...(baseUrl === undefined ? {} : { well_known: discovery }),
    };
  }

  /** Modules and signed tokens may vouch for users who are not there yet. */
  async #registerProved(method: LoginMethod, request: RequestOrigin): Promise<Account> {
    assertServerOpen(this.config);
    if (method.type === 'm.login.token' || method.trusted || !isLocalUser(method.userId, this.config.serverName))
      throw MatrixError.forbidden('Unknown user');
    await this.participation.assertRoomFor({});
    const localpart = await this.accounts.checkAvailable(method.userId.slice(1, method.userId.indexOf(':')));
    const shadowBanned = await this.modules.checkRegistration(
      { email: undefined, username: localpart, authProviderId: undefined },
      { request },
    );
    const userId = await this.accounts.register({
      ...{ localpart, displayName: method.displayName, shadowBanned },
      origin: { request },
    });
    return (await this.accounts.find(userId))!;
  }

  #checkUsable(account: Account): void {
    if (account.deactivated) throw MatrixError.userDeactivated();
    if (account.locked) throw MatrixError.userLocked();
    assertApproved(this.config, account);
  }
}
