import { All, Controller, type Type } from '@nestjs/common';
import {
  type HttpReply,
  Inbound,
  type InboundRequest,
  proxiedBodyBytes,
  type ProxiedPaths,
  proxiedRoutes,
  RequestProxy,
} from '@rookery/http';
import { FederationAccess, Origin } from '../inbound/federation-access.js';

/** A controller of the part of the federation API that one application service answers (MSC4512). */
export function proxiedForServers(paths: ProxiedPaths): Type {
  @Controller()
  class ProxiedForServersController {
    constructor(private readonly proxy: RequestProxy) {}

    /** * /_matrix/federation/(unstable/{feature}|v{n})/{proxy_prefix}/… */
    @All(proxiedRoutes('federation', paths))
    @FederationAccess({ bodyLimitBytes: proxiedBodyBytes })
    pass(@Inbound() request: InboundRequest, @Origin() origin: string): Promise<HttpReply> {
      return this.proxy.pass(request, paths, { header: 'x-matrix-origin', name: origin });
    }
  }
  return ProxiedForServersController;
}
