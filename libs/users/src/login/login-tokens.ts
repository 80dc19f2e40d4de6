import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Ids } from '@rookery/platform';
import { newSecret, secretHash } from '../common/secrets.js';
import { consumeLoginToken, insertLoginToken, type LoginToken } from '../sessions/login-token.query.js';

/** Tokens that log somebody in, once. */
@Injectable()
export class LoginTokens {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
  ) {}

  /** A token that logs the user in, once, within `durationMs`. */
  async create(userId: string, durationMs: number, authProvider?: LoginToken['authProvider']): Promise<string> {
    const token = newSecret(this.ids, 'login');
    const expiryMs = this.clock.nowMs() + durationMs;
    await this.database.write((tx) => insertLoginToken(tx, secretHash(token), { userId, authProvider }, expiryMs), {
      name: 'login_token',
    });
    return token;
  }

  /** Uses a token up. @returns `undefined` when it is unknown, expired or used */
  consume(token: string): Promise<LoginToken | undefined> {
    return this.database.write((tx) => consumeLoginToken(tx, secretHash(token), this.clock.nowMs()), {
      name: 'login_token_use',
    });
  }
}
