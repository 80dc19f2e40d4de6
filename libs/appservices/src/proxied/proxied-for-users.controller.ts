import { All, Controller, type Type } from '@nestjs/common';
import {
  Access,
  type HttpReply,
  Inbound,
  type InboundRequest,
  proxiedBodyBytes,
  type ProxiedPaths,
  proxiedRoutes,
  RequestProxy,
  Who,
} from '@rookery/http';
import type { Requester } from '@rookery/platform';

/** A controller of the part of the client API that one application service answers (MSC4512). */
export function proxiedForUsers(paths: ProxiedPaths): Type {
  @Controller()
  class ProxiedForUsersController {
    constructor(private readonly proxy: RequestProxy) {}

    /** * /_matrix/client/(unstable/{feature}|v{n})/{proxy_prefix}/… */
    @All(proxiedRoutes('client', paths))
    @Access({ auth: 'required', bodyLimitBytes: proxiedBodyBytes })
    pass(@Inbound() request: InboundRequest, @Who() { userId }: Requester): Promise<HttpReply> {
      return this.proxy.pass(request, paths, { header: 'x-matrix-user-identifier', name: userId });
    }
  }
  return ProxiedForUsersController;
}
