import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type RequestOrigin } from '@rookery/platform';
import { findAccount } from '../store/account.query.js';
import { AccountModules } from '../common/account-modules.js';
import { lowerAscii, qualifyUserId } from '../common/user-names.js';
import { accessTokenOf, type TokenCarrier } from '../sessions/access-token.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { checkJwt } from './jwt.js';
import type { LoginToken } from '../sessions/login-token.query.js';
import { LoginTokens } from './login-tokens.js';
import { PasswordLogin, type Proved } from './password-login.js';
import { unknownToken } from '../sessions/session.service.js';

/** How somebody logged in. */
export interface LoginMethod extends Proved {
  /** Login type, told to modules. */
  readonly type: string;
  readonly authProvider?: LoginToken['authProvider'];
  /** The login token that was used up. */
  readonly loginToken?: string | undefined;
  /** Application services answer for themselves: no limits, no module is asked. */
  readonly trusted?: boolean | undefined;
}

/** Checks what somebody who logs in brings as a proof. */
@Injectable()
export class LoginProofs {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly passwords: PasswordLogin,
    private readonly tokens: LoginTokens,
    private readonly appservices: AppserviceDirectory,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
  ) {}

  /**
   * Checks what a login brings.
   * @throws MatrixError 400 `M_UNKNOWN` (type), `M_MISSING_PARAM`; 401; 403 `M_FORBIDDEN`; 429
   */
  async prove(
    request: RequestOrigin & TokenCarrier,
    body: JsonObject & { readonly type: string },
  ): Promise<LoginMethod> {
    const { type } = body;
    if (type === 'm.login.application_service') return this.#proveAppservice(request, body);
    if (type === 'm.login.token') return this.#proveToken(body);
    if (type === 'org.matrix.login.jwt' && this.config.get('jwt_config.enabled')) return this.#proveJwt(body);
    if (!this.passwordTypes().includes(type)) throw MatrixError.badRequest('This login type is not offered here');
    if (type === 'm.login.password') return { type, ...(await this.passwords.check(body, request)) };
    return this.#proveByModule(request, body);
  }

  /**
   * Checks by a module that somebody who is logged in is there: a login type that a module brings, as a stage.
   * @param auth clients that name nobody mean themselves
   * @returns who was proved
   * @throws MatrixError as {@link prove}
   */
  async proveOwn(userId: string, type: string, auth: JsonObject, request: RequestOrigin): Promise<string> {
    const named = auth['identifier'] !== undefined || auth['user'] !== undefined;
    const body = { ...auth, ...(named ? {} : { user: userId }), type };
    return (await this.#proveByModule(request, body)).userId;
  }

  /** The types that are checked with a name: passwords, and what modules bring. */
  passwordTypes(): string[] {
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

  async #proveByModule(request: RequestOrigin, body: JsonObject & { readonly type: string }): Promise<LoginMethod> {
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
  async #proveAppservice(request: RequestOrigin & TokenCarrier, body: JsonObject): Promise<LoginMethod> {
    const found = accessTokenOf(request);
    if (!found) throw MatrixError.missingToken('The token of an application service is required');
    const appservice = this.appservices.byToken(found.token, request.ip);
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
    const found = await this.tokens.consume(token);
    if (!found) throw MatrixError.forbidden('Unknown, expired or used login token');
    return { type: 'm.login.token', userId: found.userId, authProvider: found.authProvider, loginToken: token };
  }

  #proveJwt(body: JsonObject): LoginMethod {
    const { token } = body;
    if (typeof token !== 'string') throw MatrixError.forbidden('A token is required');
    const claims = checkJwt(token, this.config, this.clock.nowMs());
    return {
      type: 'org.matrix.login.jwt',
      userId: qualifyUserId(lowerAscii(claims.localpart), this.config.serverName),
      displayName: claims.displayName,
    };
  }
}
