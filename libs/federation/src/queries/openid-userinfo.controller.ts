import { Controller, Get } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, requiredQueryString } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { OpenIdService } from '@rookery/users';

/** Tells a third party whose token it was shown. */
@Controller()
export class OpenIdUserinfoController {
  constructor(private readonly openId: OpenIdService) {}

  /** GET /_matrix/federation/v1/openid/userinfo */
  @Get('/_matrix/federation/v1/openid/userinfo')
  @Access({ auth: 'none' })
  async userinfo(@Inbound() request: InboundRequest): Promise<object> {
    const sub = await this.openId.userOf(requiredQueryString(request, 'access_token'));
    if (sub === undefined) throw MatrixError.unknownToken('The token is not known or has expired');
    return { sub };
  }
}
