import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { qualifyUserId } from '../common/user-names.js';
import { namesSomebody, type Proved } from './password-login.js';

/** Logins that modules check. */
@Injectable()
export class ModuleLogin {
  constructor(
    private readonly config: Config,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
  ) {}

  /** The login types that modules bring. */
  get types(): Iterable<string> {
    return this.modules.loginTypes.keys();
  }

  /** Whether a module checks this type. */
  has(type: string): boolean {
    return this.modules.loginTypes.has(type);
  }

  /**
   * Checks a login by a type that a module brings, or a password that modules check alone.
   * @throws MatrixError 400 `M_MISSING_PARAM`; 403 `M_FORBIDDEN`; 429
   */
  async prove(
    request: RequestOrigin,
    body: JsonObject & { readonly type: string },
  ): Promise<Proved & { readonly type: string }> {
    const identifier = body['identifier'] as { type?: unknown; user?: unknown } | undefined;
    const name = identifier?.type === 'm.id.user' ? identifier.user : body['user'];
    if (typeof name !== 'string') throw MatrixError.missingParam("Missing 'identifier.user'");
    const missing = this.modules.loginTypes.get(body.type)?.fields.find((field) => body[field] === undefined);
    if (missing !== undefined) throw MatrixError.missingParam(`Missing parameter '${missing}'`);
    const userId = qualifyUserId(name, this.config.serverName);
    const key = userId.toLowerCase().slice(0, 255);
    if (!(await this.limiter.mayTake('rc_login.failed_attempts', key)))
      await this.limiter.take('rc_login.failed_attempts', key);
    const success = await this.modules.checkAuth(userId, body.type, body, { request });
    if (success) return { type: body.type, userId: success.userId, onLogin: success.onLogin };
    await this.limiter.take('rc_login.failed_attempts', key).catch(() => undefined);
    throw MatrixError.forbidden('Wrong user name or password');
  }

  /**
   * Checks by a module that somebody who is logged in is there: a login type that a module brings, as a stage.
   * @param auth clients that name nobody mean themselves
   * @returns who was proved
   * @throws MatrixError 400 `M_MISSING_PARAM`; 403 `M_FORBIDDEN`; 429
   */
  async proveOwn(userId: string, type: string, auth: JsonObject, request: RequestOrigin): Promise<string> {
    const body = { ...auth, ...(namesSomebody(auth) ? {} : { user: userId }), type };
    return (await this.prove(request, body)).userId;
  }
}
