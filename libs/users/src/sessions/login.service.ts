import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type InboundRequest, RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { type Account, findAccount } from '../accounts/account.query.js';
import { AccountService } from '../accounts/account.service.js';
import { accessTokenOf } from './access-token.js';
import { AppserviceDirectory } from './appservice-directory.js';
import { AccountModules } from '../common/account-modules.js';
import { newSecret, secretHash } from '../common/secrets.js';
import { isLocalUser, qualifyUserId } from '../common/user-names.js';
import { checkJwt } from './jwt.js';
import { consumeLoginToken, insertLoginToken, type LoginToken } from './login-token.query.js';
import { PasswordLogin, type Proved } from './password-login.js';
import { type IssuedSession, SessionService, unknownToken } from './session.service.js';

/** What a login asks for beside its proof. */
export interface DeviceRequest {
  readonly deviceId?: string | undefined;
  readonly initialDisplayName?: string | undefined;
  readonly refreshable?: boolean | undefined;
}

/** How somebody logged in. */
export interface LoginMethod extends Proved {
  /** Login type, told to modules. */
  readonly type: string;
  readonly authProvider?: LoginToken['authProvider'];
  /** Application services answer for themselves: no limits, no module is asked. */
  readonly trusted?: boolean | undefined;
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
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
    private readonly passwords: PasswordLogin,
    private readonly appservices: AppserviceDirectory,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
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
    for (const type of this.#passwordTypes()) flows.push({ type });
    flows.push({ type: 'm.login.application_service' });
    return flows;
  }

  /**
   * Checks a login and opens a session.
   * @returns the answer for the client
   * @throws MatrixError 400 `M_UNKNOWN` (type), 401, 403 `M_FORBIDDEN`, `M_USER_DEACTIVATED`; 429
   */
  async login(
    request: InboundRequest,
    body: JsonObject & { readonly type: string },
    device: DeviceRequest,
  ): Promise<JsonObject> {
    if (body.type !== 'm.login.application_service') await this.limiter.take('rc_login.address', request.ip);
    return this.complete(await this.#prove(request, body), device, request);
  }

  /**
   * Opens the session of somebody who proved to be a user.
   * @returns the answer for the client
   * @throws MatrixError 401 `M_USER_LOCKED`, 403 `M_FORBIDDEN`, `M_USER_DEACTIVATED`
   */
  async complete(method: LoginMethod, device: DeviceRequest, request: InboundRequest): Promise<JsonObject> {
    const { userId } = method;
    if (!method.trusted) await this.limiter.take('rc_login.account', userId.toLowerCase());
    const account = (await findAccount(this.database, userId)) ?? (await this.#registerProved(method, request));
    this.#checkUsable(account);
    const authProviderId = method.authProvider?.id;
    if (!method.trusted) {
      await this.modules.checkLogin(
        { userId, deviceId: device.deviceId, initialDisplayName: device.initialDisplayName, authProviderId },
        { request },
      );
    }
    const session = await this.sessions.open({ userId, ...device, authProvider: method.authProvider });
    const response = this.response(session);
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
  async createToken(userId: string, durationMs: number, authProvider?: LoginToken['authProvider']): Promise<string> {
    const token = newSecret(this.ids, 'login');
    await this.database.write(
      (tx) => insertLoginToken(tx, secretHash(token), { userId, authProvider }, this.clock.nowMs() + durationMs),
      { name: 'login_token' },
    );
    return token;
  }

  async #prove(request: InboundRequest, body: JsonObject & { readonly type: string }): Promise<LoginMethod> {
    const { type } = body;
    if (type === 'm.login.application_service') return this.#proveAppservice(request, body);
    if (type === 'm.login.token') return this.#proveToken(body);
    if (type === 'org.matrix.login.jwt' && this.config.get('jwt_config.enabled')) return this.#proveJwt(body);
    if (!this.#passwordTypes().includes(type))
      throw new MatrixError(400, 'M_UNKNOWN', 'This login type is not offered here');
    if (type === 'm.login.password') return { type, ...(await this.passwords.check(body, request)) };
    return this.#proveByModule(request, body);
  }

  /** The types that are checked with a name: passwords, and what modules bring. */
  #passwordTypes(): string[] {
    const enabled = this.config.get('password_config.enabled') === true;
    const types = new Set(this.modules.loginTypes.keys());
    types.delete('m.login.password');
    return [
      ...(enabled &&
      (this.config.get('password_config.localdb_enabled') || this.modules.loginTypes.has('m.login.password'))
        ? ['m.login.password']
        : []),
      ...(enabled ? types : []),
    ];
  }

  async #proveByModule(request: InboundRequest, body: JsonObject & { readonly type: string }): Promise<LoginMethod> {
    const identifier = body['identifier'] as { type?: unknown; user?: unknown } | undefined;
    const name = identifier?.type === 'm.id.user' ? identifier.user : body['user'];
    if (typeof name !== 'string') throw MatrixError.missingParam("Missing 'identifier.user'");
    const userId = qualifyUserId(name, this.config.serverName);
    const key = userId.toLowerCase().slice(0, 255);
    if (!(await this.limiter.mayTake('rc_login.failed_attempts', key)))
      await this.limiter.take('rc_login.failed_attempts', key);
    const success = await this.modules.checkAuth(userId, body.type, body, { request });
    if (success) return { type: body.type, userId: success.userId, onLogin: success.onLogin };
    await this.limiter.take('rc_login.failed_attempts', key).catch(() => undefined);
    throw MatrixError.forbidden('Wrong user name or password');
  }

  /** @spec client-server-api#appservice-login */
  async #proveAppservice(request: InboundRequest, body: JsonObject): Promise<LoginMethod> {
    const found = accessTokenOf(request);
    if (!found) throw new MatrixError(401, 'M_MISSING_TOKEN', 'The token of an application service is required');
    const appservice = this.appservices.byToken(found.token);
    if (!appservice) throw unknownToken('Not the token of an application service', false);
    const identifier = body['identifier'] as { type?: unknown; user?: unknown } | undefined;
    const name = identifier?.user ?? body['user'];
    if (typeof name !== 'string') throw MatrixError.missingParam("Missing 'identifier.user'");
    const userId = qualifyUserId(name, this.config.serverName);
    if (userId !== appservice.senderUserId && !appservice.covers(userId))
      throw MatrixError.forbidden('The application service may not act as this user');
    if (!(await findAccount(this.database, userId))) throw MatrixError.forbidden('Unknown user');
    return { type: 'm.login.application_service', userId, trusted: true };
  }

  /** @spec client-server-api#token-based */
  async #proveToken(body: JsonObject): Promise<LoginMethod> {
    const { token } = body;
    if (typeof token !== 'string') throw MatrixError.missingParam("Missing parameter 'token'");
    const found = await this.database.write((tx) => consumeLoginToken(tx, secretHash(token), this.clock.nowMs()), {
      name: 'login_token_use',
    });
    if (!found) throw MatrixError.forbidden('Unknown, expired or used login token');
    return { type: 'm.login.token', userId: found.userId, authProvider: found.authProvider };
  }

  #proveJwt(body: JsonObject): LoginMethod {
    const { token } = body;
    if (typeof token !== 'string') throw MatrixError.forbidden('A token is required');
    const claims = checkJwt(token, this.config, this.clock.nowMs());
    return {
      type: 'org.matrix.login.jwt',
      userId: qualifyUserId(claims.localpart.toLowerCase(), this.config.serverName),
      displayName: claims.displayName,
    };
  }

  /** Modules and signed tokens may vouch for users who are not there yet. */
  async #registerProved(method: LoginMethod, request: InboundRequest): Promise<Account> {
    if (method.type === 'm.login.token' || method.trusted || !isLocalUser(method.userId, this.config.serverName))
      throw MatrixError.forbidden('Unknown user');
    const localpart = await this.accounts.checkAvailable(method.userId.slice(1, method.userId.indexOf(':')));
    const userId = await this.accounts.register({ localpart, displayName: method.displayName, origin: { request } });
    return (await findAccount(this.database, userId))!;
  }

  #checkUsable(account: Account): void {
    if (account.deactivated) throw new MatrixError(403, 'M_USER_DEACTIVATED', 'This account has been deactivated');
    if (account.locked) throw new MatrixError(401, 'M_USER_LOCKED', 'This account is locked', { soft_logout: true });
    if (!account.approved && this.config.get('experimental_features.msc3866')?.require_approval_for_new_accounts) {
      throw new MatrixError(
        403,
        'ORG.MATRIX.MSC3866_USER_AWAITING_APPROVAL',
        'This account is waiting for an administrator',
        { approval_notice_medium: 'org.matrix.msc3866.none' },
      );
    }
  }
}
