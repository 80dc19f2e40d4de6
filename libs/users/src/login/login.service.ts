import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Port, type RequestOrigin } from '@rookery/platform';
import { type Account, findAccount } from '../store/account.query.js';
import { AccountService } from '../accounts/account.service.js';
import { assertApproved } from '../accounts/approval.js';
import { AccountModules } from '../common/account-modules.js';
import { assertServerOpen } from '../common/server-gate.js';
import { isLocalUser } from '../common/user-names.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { type LoginMethod, LoginProofs } from './login-proofs.js';
import type { LoginToken } from '../sessions/login-token.query.js';
import { LoginTokens } from './login-tokens.js';
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
  /** What whoever makes login tokens adds to the answer for the client; the answer's own win. */
  readonly tokenFields = new Port<(token: string) => Promise<JsonObject | undefined>>('login_token_fields', 'required');

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
    private readonly proofs: LoginProofs,
    private readonly tokens: LoginTokens,
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
    const account = (await findAccount(this.database, userId)) ?? (await this.#registerProved(method, request));
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
    const session = await this.sessions.open({ userId, ...device, authProvider: method.authProvider });
    const more = method.loginToken === undefined ? undefined : await this.tokenFields.given?.(method.loginToken);
    const response = { ...more, ...this.response(session) };
    await this.modules.loggedIn(userId, method.type, authProviderId, { request });
    await method.onLogin?.(response);
    return response;
  }

  /** A session as clients see it. */
  response(session: IssuedSession): JsonObject {
    const baseUrl = this.config.get('public_baseurl');
    return {
      user_id: session.userId,
      access_token: session.accessToken,
      home_server: this.config.serverName,
      device_id: session.deviceId,
      ...(session.refreshToken === undefined ? {} : { refresh_token: session.refreshToken }),
      ...(session.expiresInMs === undefined ? {} : { expires_in_ms: session.expiresInMs }),
      ...(baseUrl === undefined ? {} : { well_known: { 'm.homeserver': { base_url: baseUrl } } }),
    };
  }

  /** A token that logs the user in, once, within `durationMs`. */
  createToken(userId: string, durationMs: number, authProvider?: LoginToken['authProvider']): Promise<string> {
    return this.tokens.create(userId, durationMs, authProvider);
  }

  /** Modules and signed tokens may vouch for users who are not there yet. */
  async #registerProved(method: LoginMethod, request: RequestOrigin): Promise<Account> {
    assertServerOpen(this.config);
    if (method.type === 'm.login.token' || method.trusted || !isLocalUser(method.userId, this.config.serverName))
      throw MatrixError.forbidden('Unknown user');
    await this.participation.assertRoomFor({});
    const localpart = await this.accounts.checkAvailable(method.userId.slice(1, method.userId.indexOf(':')));
    const userId = await this.accounts.register({ localpart, displayName: method.displayName, origin: { request } });
    return (await findAccount(this.database, userId))!;
  }

  #checkUsable(account: Account): void {
    if (account.deactivated) throw MatrixError.userDeactivated();
    if (account.locked) throw MatrixError.userLocked();
    assertApproved(this.config, account);
  }
}
