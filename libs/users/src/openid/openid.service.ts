import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Ids } from '@rookery/platform';
import { newSecret, secretHash } from '../common/secrets.js';
import { holdAccount } from '../store/account-hold.query.js';
import { insertOpenIdToken, userOfOpenIdToken } from './openid.query.js';

const lifetimeMs = 3_600_000;

/** Tokens with which a user proves their Matrix id to somebody else. @spec client-server-api#openid */
@Injectable()
export class OpenIdService {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
  ) {}

  /** A new token, as the client gets it. */
  async create(userId: string): Promise<object> {
    const token = newSecret(this.ids, 'openid');
    await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        await insertOpenIdToken(tx, secretHash(token), userId, this.clock.nowMs() + lifetimeMs);
      },
      { name: 'openid_token', anyProcess: true },
    );
    return {
      access_token: token,
      token_type: 'Bearer',
      matrix_server_name: this.config.serverName,
      expires_in: lifetimeMs / 1000,
    };
  }

  /** The user whom a token that still holds was made for. */
  userOf(token: string): Promise<string | undefined> {
    return userOfOpenIdToken(this.database, secretHash(token), this.clock.nowMs());
  }
}
