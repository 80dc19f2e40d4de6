import { Injectable } from '@nestjs/common';
import { ownUrl } from '@rookery/http';
import { Config } from '@rookery/platform';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { emailAppId } from '../pushers/pusher.js';

/** Path of the page that ends mails about missed messages. */
export const unsubscribePath = '/_synapse/client/unsubscribe';

/** Links in mails that end them without a login. */
@Injectable()
export class UnsubscribeLinks {
  constructor(private readonly config: Config) {}

  /** `undefined` where there is no key to sign with. */
  link(userId: string, address: string): string | undefined {
    const signature = this.#sign(userId, address);
    if (signature === undefined) return undefined;
    return ownUrl(this.config, unsubscribePath.slice(1), {
      access_token: `${Buffer.from(userId).toString('base64url')}.${signature}`,
      app_id: emailAppId,
      pushkey: address,
    });
  }

  /** Whose mails a link ends; `undefined` for one that this server did not make. */
  check(token: string, address: string): string | undefined {
    const [name = '', given = ''] = token.split('.');
    const userId = Buffer.from(name, 'base64url').toString('utf8');
    const signature = Buffer.from(this.#sign(userId, address) ?? '');
    const found = Buffer.from(given);
    if (signature.length === 0 || signature.length !== found.length || !timingSafeEqual(signature, found))
      return undefined;
    return userId;
  }

  #sign(userId: string, address: string): string | undefined {
    const key = this.config.get('macaroon_secret_key');
    if (key === undefined || key === '') return undefined;
    return createHmac('sha256', key)
      .update(JSON.stringify(['unsubscribe', userId, address]))
      .digest('base64url');
  }
}
