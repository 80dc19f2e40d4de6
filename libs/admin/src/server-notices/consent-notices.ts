import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { ConsentService } from '@rookery/users';
import { ServerNotices } from './server-notices.service.js';

/** Tells users where to read the server's policy and agree to it (`user_consent.server_notice_content`). */
@Injectable()
export class ConsentNotices {
  constructor(
    private readonly config: Config,
    private readonly consent: ConsentService,
    private readonly notices: ServerNotices,
  ) {}

  /** Which of these users are to be told. */
  among(userIds: readonly string[]): Promise<string[]> {
    return this.notices.enabled ? this.consent.toRemind(userIds) : Promise.resolve([]);
  }

  /** Tells one user, once for each version. */
  async tell(userId: string): Promise<void> {
    const content = this.config.get('user_consent.server_notice_content');
    const { version } = this.consent;
    if (content === undefined || version === undefined) return;
    const filled = fillIn(content, this.consent.uriFor(userId)) as JsonObject;
    // Should the server die before the next line, the same transaction makes no second notice.
    await this.notices.send(userId, filled, { transactionId: `consent:${version}`.slice(0, 255) });
    await this.consent.reminded(userId, version);
  }
}

/** Puts the address of the page into every text of a notice. */
function fillIn(value: unknown, uri: string): unknown {
  if (typeof value === 'string') return value.replaceAll('%(consent_uri)s', uri);
  if (Array.isArray(value)) return value.map((one) => fillIn(one, uri));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, fillIn(one, uri)]));
}
