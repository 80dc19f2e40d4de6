import { Controller, Get } from '@nestjs/common';
import { Access, type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { OpenIdService } from '@rookery/users';

const userinfoQuery = queryOf({
  access_token: param.string('The token that the third party was shown.'),
});

/** Tells a third party whose token it was shown. */
@Controller()
export class OpenIdUserinfoController {
  constructor(private readonly openId: OpenIdService) {}

  /** GET /_matrix/federation/v1/openid/userinfo. @throws MatrixError 401 `M_MISSING_TOKEN`, `M_UNKNOWN_TOKEN` */
  @Get('/_matrix/federation/v1/openid/userinfo')
  @Access({ auth: 'none' })
  async userinfo(@Query(userinfoQuery) query: InferQuery<typeof userinfoQuery>): Promise<object> {
    if (query.access_token === undefined) throw MatrixError.missingToken();
    const sub = await this.openId.userOf(query.access_token);
    if (sub === undefined) throw MatrixError.unknownToken('The token is not known or has expired');
    return { sub };
  }
}
