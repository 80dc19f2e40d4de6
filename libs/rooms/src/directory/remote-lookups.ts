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
   * @param server who is asked; a question to this one costs nothing
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async count(server: string | undefined, request: RequestOrigin, requester: Requester | undefined): Promise<void> {
    if (server !== undefined && server !== this.config.serverName)
      await this.limiter.take('rc_profile', requester?.userId ?? request.ip, requester);
  }
}
