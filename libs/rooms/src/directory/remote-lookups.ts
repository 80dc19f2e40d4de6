import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { Config, type Requester, type RequestOrigin } from '@rookery/platform';

/** Questions to other servers that anybody may have asked: strangers could have any server asked otherwise, as often as they like. */
@Injectable()
export class RemoteLookups {
  constructor(
    private readonly config: Config,
    private readonly limiter: RateLimiter,
  ) {}

  /**
   * Counts a question, by user, or by address where nobody is logged in.
   * @param servers who may be asked; a question to this one costs nothing, and one to several of them counts once
   * @param by who asks: a user, or the request of somebody who is not logged in
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async count(servers: readonly (string | undefined)[], by: Requester | RequestOrigin): Promise<void> {
    if (!servers.some((server) => server && server !== this.config.serverName)) return;
    if ('isGuest' in by) await this.limiter.take('rc_profile', by.userId, by);
    else await this.limiter.take('rc_profile', by.ip);
  }
}
