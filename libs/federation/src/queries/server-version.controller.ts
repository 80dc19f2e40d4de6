import { Controller, Get } from '@nestjs/common';
import { ServerSoftware } from '@rookery/federation-client';
import { Access } from '@rookery/http';

/** What runs here. */
@Controller()
export class FederationVersionController {
  constructor(private readonly software: ServerSoftware) {}

  /** GET /_matrix/federation/v1/version */
  @Get('/_matrix/federation/v1/version')
  @Access({ auth: 'none' })
  version(): object {
    const { name, version } = this.software;
    return { server: { name, version } };
  }
}
