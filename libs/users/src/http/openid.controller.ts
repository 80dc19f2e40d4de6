import { Controller, Param, Post } from '@nestjs/common';
import { Access, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { OpenIdService } from '../openid/openid.service.js';

@Controller()
export class OpenIdController {
  constructor(private readonly openId: OpenIdService) {}

  /** POST /_matrix/client/v3/user/{userId}/openid/request_token */
  @Post(stable('/user/:userId/openid/request_token'))
  @Access({ auth: 'required', anyProcess: true })
  create(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    if (userId !== requester.userId) throw MatrixError.forbidden('Tokens can be made for yourself only');
    return this.openId.create(userId);
  }
}
