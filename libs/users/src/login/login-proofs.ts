import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { lowerAscii, qualifyUserId } from '../common/user-names.js';
import { accessTokenOf, type TokenCarrier } from '../sessions/access-token.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { JwtLogin } from './jwt.js';
import type { LoginToken } from '../sessions/login-token.query.js';
import { LoginTokens } from './login-tokens.js';
import { ModuleLogin } from './module-login.js';
import { PasswordLogin, type Proved } from './password-login.js';
import { unknownToken } from '../sessions/session.service.js';

/** How somebody logged in. */
export interface LoginMethod extends Proved {
  /** Login type, told to modules. */
  readonly type: string;
  readonly authProvider?: LoginToken['authProvider'];
  /** More fields for the answer, whose own win. */
  readonly fields?: JsonObject | undefined;
  /** Application services answer for themselves: no limits, no module is asked. */
  readonly trusted?: boolean | undefined;
}

/** Checks what somebody who logs in brings as a proof. */
@Injectable()
export class LoginProofs {
  constructor(
    private readonly accounts: AccountService,
    private readonly config: Config,
    private readonly passwords: PasswordLogin,
    private readonly tokens: LoginTokens,
    private readonly jwts: JwtLogin,
    private readonly appservices: AppserviceDirectory,
    private readonly byModules: ModuleLogin,
  ) {}

  /**
   * Checks what a login brings. Where another service authenticates users, it is told that nobody logs in here.
   * @throws MatrixError 400 `M_UNKNOWN` (type), `M_MISSING_PARAM`, `M_APPSERVICE_LOGIN_UNSUPPORTED`; 401; 403 `M_FORBIDDEN`; 404
   *   `M_UNRECOGNIZED`; 429
   */
  async prove(
    request: RequestOrigin & TokenCarrier,
    body: JsonObject & { readonly type: string },
  ): Promise<LoginMethod> {
    const { type } = body;
    if (this.config.get('matrix_authentication_service.enabled'))
      throw type === 'm.login.application_service'
        ? MatrixError.appserviceLoginUnsupported()
        : MatrixError.unrecognized();
    if (type === 'm.login.application_service') return this.#proveAppservice(request, body);
    if (type === 'm.login.token') return this.#proveToken(body);
    if (type === 'org.matrix.login.jwt' && this.jwts.isEnabled) return this.#proveJwt(body);
    if (!this.passwordTypes().includes(type)) throw MatrixError.badRequest('This login type is not offered here');
    if (type === 'm.login.password') return { type, ...(await this.passwords.check(body, request)) };
    return this.byModules.prove(request, body);
  }

  /** The types that are checked with a name: passwords, where the settings want them, and what modules bring. */
  passwordTypes(): string[] {
    const takesPasswords = this.config.get('password_config.localdb_enabled') || this.byModules.has('m.login.password');
    const types = new Set(this.byModules.types);
    types.delete('m.login.password');
    return this.config.get('password_config.enabled') === true && takesPasswords
      ? ['m.login.password', ...types]
      : [...types];
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
    if (!(await this.accounts.find(userId))) throw MatrixError.forbidden('Unknown user');
    return { type: 'm.login.application_service', userId, trusted: true };
  }

  /** @spec client-server-api#token-based */
  async #proveToken(body: JsonObject): Promise<LoginMethod> {
    const { token } = body;
    if (typeof token !== 'string') throw MatrixError.missingParam("Missing parameter 'token'");
    const found = await this.tokens.consume(token);
    if (!found) throw MatrixError.forbidden('Unknown, expired or used login token');
    const { userId, authProvider, proof, fields } = found;
    return { type: 'm.login.token', userId, authProvider, proof, fields };
  }

  #proveJwt(body: JsonObject): LoginMethod {
    const { token } = body;
    if (typeof token !== 'string') throw MatrixError.forbidden('A token is required');
    const claims = this.jwts.check(token);
    return {
      type: 'org.matrix.login.jwt',
      userId: qualifyUserId(lowerAscii(claims.localpart), this.config.serverName),
      displayName: claims.displayName,
    };
  }
}
