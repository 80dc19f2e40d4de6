import { Controller, Get, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { accessTokenOf } from './access-token.js';
import { SessionService } from './session.service.js';

@Controller()
export class SessionController {
  constructor(
    private readonly sessions: SessionService,
    private readonly modules: AccountModules,
  ) {}

  /** GET /_matrix/client/v3/account/whoami */
  @Get(stable('/account/whoami'))
  @Access({ auth: 'required', guests: true })
  whoami(@Who() requester: Requester): object {
    return {
      user_id: requester.userId,
      is_guest: requester.isGuest,
      ...(requester.deviceId === undefined ? {} : { device_id: requester.deviceId }),
    };
  }

  /** POST /_matrix/client/v3/refresh */
  @Post(stable('/refresh'))
  @Access({ ownAuth: true, auth: 'none' })
  async refresh(
    @JsonBody({ required: ['refresh_token'], properties: { refresh_token: { type: 'string' } } })
    body: {
      refresh_token: string;
    },
  ): Promise<object> {
    const issued = await this.sessions.refresh(body.refresh_token);
    return { access_token: issued.accessToken, refresh_token: issued.refreshToken, expires_in_ms: issued.expiresInMs };
  }

  /** POST /_matrix/client/v3/logout */
  @Post(stable('/logout'))
  @Access({ ownAuth: true, auth: 'required', guests: true, locked: true, expired: true })
  async logout(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    if (requester.accessTokenId === undefined) {
      // An application service ends the session of the device that it acts as.
      if (requester.deviceId !== undefined) await this.sessions.closeDevices(requester.userId, [requester.deviceId]);
      return {};
    }
    await this.modules.loggedOut(requester.userId, requester.deviceId, accessTokenOf(request)?.token ?? '', {
      requester,
    });
    await this.sessions.close(requester.puppetedBy ?? requester.userId, requester.accessTokenId, requester.deviceId);
    return {};
  }

  /** POST /_matrix/client/v3/logout/all */
  @Post(stable('/logout/all'))
  @Access({ ownAuth: true, auth: 'required', guests: true, locked: true, expired: true })
  async logoutAll(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    await this.modules.loggedOut(requester.userId, requester.deviceId, accessTokenOf(request)?.token ?? '', {
      requester,
    });
    await this.sessions.closeAll(requester.userId);
    return {};
  }
}
