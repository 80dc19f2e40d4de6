import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Ids, Metrics, type Requester } from '@rookery/platform';
import { newSecret, secretHash } from '../common/secrets.js';
import { UserPorts } from '../ports.js';
import {
  consumeLoginToken,
  insertLoginToken,
  type LoginToken,
  reasonOfRefusal,
} from '../sessions/login-token.query.js';
import { type SessionProof, unknownToken } from '../sessions/session.service.js';
import { isSessionHeld } from '../sessions/token.query.js';

/** A token that was used up. */
export interface UsedLoginToken extends LoginToken {
  /** It may be taken back until the session is open. */
  readonly proof: SessionProof;
  /** For the answer to the login. */
  readonly fields: JsonObject | undefined;
}

/** Tokens that log somebody in, once. */
@Injectable()
export class LoginTokens {
  readonly #refused;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly ports: UserPorts,
    metrics: Metrics,
  ) {
    this.#refused = metrics.counter('synapse_user_login_invalid_login_tokens');
  }

  /**
   * A token that logs the user in, once, within `durationMs`.
   * @param session the one that allows it, and with which it ends
   * @throws MatrixError 401 `M_UNKNOWN_TOKEN` (the session has ended)
   */
  async create(
    userId: string,
    durationMs: number,
    authProvider?: LoginToken['authProvider'],
    session?: Requester,
  ): Promise<string> {
    const token = newSecret(this.ids, 'login');
    const expiryMs = this.clock.nowMs() + durationMs;
    await this.database.write(
      async (tx) => {
        if (session && !(await isSessionHeld(tx, session))) throw unknownToken('The session has ended', false);
        await insertLoginToken(tx, secretHash(token), { userId, authProvider }, expiryMs, session?.deviceId);
      },
      { name: 'login_token' },
    );
    return token;
  }

  /** Uses a token up. @returns `undefined` when it is unknown, expired or used */
  async consume(token: string): Promise<UsedLoginToken | undefined> {
    const loginTokenHash = secretHash(token);
    const used = await this.database.write((tx) => consumeLoginToken(tx, loginTokenHash, this.clock.nowMs()), {
      name: 'login_token_use',
    });
    if (used === undefined) this.#refused.inc({ reason: await reasonOfRefusal(this.database, loginTokenHash) });
    return used && { ...used, proof: { loginTokenHash }, fields: await this.ports.loginTokenFields.given?.(token) };
  }
}
