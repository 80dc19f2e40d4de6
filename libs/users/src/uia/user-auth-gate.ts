import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config, type Requester, type RequestOrigin } from '@rookery/platform';
import { findAccount } from '../store/account.query.js';
import { AccountModules } from '../common/account-modules.js';
import { lastValidatedMs, markValidated } from '../sessions/token.query.js';
import { AuthenticationService } from '../authentication/authentication-service.js';
import { UserPorts } from '../ports.js';
import { authField } from './auth-field.js';
import { InteractiveAuthRequired } from './uia-errors.js';
import { UiaService } from './uia.service.js';

/** How an operation asks for its user's confirmation. */
export interface GateOptions {
  /** Completes "You are about to …". */
  readonly description: string;
  /** A recent confirmation of the same session may serve (`ui_auth.session_timeout`). */
  readonly mayReuse?: boolean;
}

/** Interactive auth of a user who is logged in: the user confirms to be there, with a password, to a module or by single sign-on. */
@Injectable()
export class UserAuthGate {
  /** The key of a body that stages are completed with. @spec client-server-api#user-interactive-authentication-api */
  static readonly field = authField;

  constructor(
    private readonly uia: UiaService,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly modules: AccountModules,
    private readonly service: AuthenticationService,
    private readonly ports: UserPorts,
  ) {}

  /**
   * Resolves when the requester has confirmed. Application services need not: their token is the confirmation.
   * @throws InteractiveAuthRequired until then
   */
  async require(requester: Requester, request: RequestOrigin, body: JsonObject, options: GateOptions): Promise<void> {
    if (requester.appserviceId !== undefined) return;
    if (this.service.isEnabled) throw await this.#elsewhere();
    const { accessTokenId } = requester;
    const timeoutMs = options.mayReuse ? this.config.get('ui_auth.session_timeout') : 0;
    if (timeoutMs > 0 && accessTokenId !== undefined) {
      const lastMs = await lastValidatedMs(this.database, accessTokenId);
      if (lastMs !== undefined && this.clock.nowMs() - lastMs < timeoutMs) return;
    }
    const flows = await this.flowsFor(requester.userId);
    await this.uia.authenticate({ request, body, flows, description: options.description, userId: requester.userId });
    if (accessTokenId !== undefined && this.config.get('ui_auth.session_timeout') > 0) {
      await this.database.write((tx) => markValidated(tx, accessTokenId, this.clock.nowMs()), {
        name: 'uia_validated',
      });
    }
  }

  /** Where another service authenticates users, they confirm there: what is left to confirm here are new cross-signing keys. */
  async #elsewhere(): Promise<InteractiveAuthRequired> {
    const place = { url: await this.service.keyResetUrl() };
    return new InteractiveAuthRequired({
      session: 'dummy',
      flows: [['m.oauth'], ['org.matrix.cross_signing_reset']],
      params: { 'm.oauth': place, 'org.matrix.cross_signing_reset': place },
      completed: [],
    });
  }

  /** By what a user can confirm. Somebody who has neither a password nor single sign-on is offered the password all the same. */
  async flowsFor(userId: string): Promise<string[][]> {
    const account = await findAccount(this.database, userId);
    const flows: string[][] = [];
    const types = new Set(this.modules.loginTypes.keys());
    const hasPassword = account?.passwordHash !== undefined && this.config.get('password_config.localdb_enabled');
    if (hasPassword) types.add('m.login.password');
    if (this.config.get('password_config.enabled') === false) types.delete('m.login.password');
    for (const type of types) flows.push([type]);
    if (await this.ports.singleSignOn.given?.(userId)) flows.push(['m.login.sso']);
    return flows.length > 0 ? flows : [['m.login.password']];
  }
}
