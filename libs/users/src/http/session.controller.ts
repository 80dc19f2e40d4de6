import { Controller, Get, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { accessTokenOf } from '../sessions/access-token.js';
import { SessionService } from '../sessions/session.service.js';

const refreshBody = json.object({
  refresh_token: json.required('The refresh token that came with the access token.', json.string()),
});

@Controller()
export class SessionController {
  constructor(
    private readonly sessions: SessionService,
    private readonly modules: AccountModules,
  ) {}

  /** GET /_matrix/client/v3/account/whoami */
  @Get(stable('/account/whoami'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
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
    @JsonBody(refreshBody)
    body: Infer<typeof refreshBody>,
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
      if (requester.deviceId !== undefined)
        await this.sessions.closeDevices(requester.userId, [requester.deviceId], { origin: { requester } });
      return {};
    }
    const { userId, deviceId, puppetedBy, accessTokenId } = requester;
    const accessToken = accessTokenOf(request)?.token ?? '';
    if (deviceId === undefined) await this.modules.loggedOut(userId, deviceId, accessToken, { requester });
    const ending = { origin: { requester }, own: { deviceId, accessToken } };
    await this.sessions.close(puppetedBy ?? userId, accessTokenId, deviceId, ending);
    return {};
  }

  /** POST /_matrix/client/v3/logout/all */
  @Post(stable('/logout/all'))
  @Access({ ownAuth: true, auth: 'required', guests: true, locked: true, expired: true })
  async logoutAll(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    const own = { deviceId: requester.deviceId, accessToken: accessTokenOf(request)?.token ?? '' };
    await this.sessions.closeAll(requester.userId, undefined, { origin: { requester }, own });
    return {};
  }
}
