import { createHmac } from 'node:crypto';
import { Controller, Get } from '@nestjs/common';
import { Access, client, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';

/** What clients need for calls. */
@Controller()
export class CallsController {
  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /**
   * GET /_matrix/client/v3/voip/turnServer: credentials for the TURN servers, for a while; `{}` where none are set up.
   * @spec client-server-api#get_matrixclientv3voipturnserver
   */
  @Get(stable('/voip/turnServer'))
  @Access({ auth: 'required', guests: true })
  turnServer(@Who() requester: Requester): object {
    const { config } = this;
    if (requester.isGuest && !config.get('turn_allow_guests'))
      throw MatrixError.guestAccessForbidden('Guests may not use the TURN servers');
    const uris = config.get('turn_uris');
    const secret = config.get('turn_shared_secret');
    const name = config.get('turn_username');
    const password = config.get('turn_password');
    const lifetimeMs = config.get('turn_user_lifetime');
    if (uris.length === 0) return {};
    const ttl = Math.floor(lifetimeMs / 1000);
    if (secret) {
      // The TURN server knows the secret and checks both parts; nothing has to be stored.
      const username = `${Math.floor((this.clock.nowMs() + lifetimeMs) / 1000)}:${requester.userId}`;
      return { username, password: createHmac('sha1', secret).update(username).digest('base64'), ttl, uris };
    }
    if (name && password) return { username: name, password, ttl, uris };
    return {};
  }

  /** GET /_matrix/client/unstable/org.matrix.msc4143/rtc/transports (MSC4143): the backends of group calls. */
  @Get(client(['unstable'], '/org.matrix.msc4143/rtc/transports'))
  @Access({ auth: 'required' })
  transports(): object {
    if (!this.config.get('experimental_features.msc4143_enabled')) throw MatrixError.unrecognized();
    const transports = this.config.get('matrix_rtc.transports');
    return transports.length > 0 ? { rtc_transports: transports } : {};
  }
}
