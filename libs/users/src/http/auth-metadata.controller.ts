import { Controller, Get } from '@nestjs/common';
import { Access, client, HttpReply } from '@rookery/http';
import { AuthenticationService } from '../authentication/authentication-service.js';

const cached = { 'cache-control': 'public, max-age=600, s-maxage=3600, stale-while-revalidate=600' };

/** How clients find the service that authenticates users; unknown endpoints where there is none. */
@Controller()
export class AuthMetadataController {
  constructor(private readonly service: AuthenticationService) {}

  /** GET /_matrix/client/v1/auth_metadata */
  @Get([...client(['v1'], '/auth_metadata'), ...client(['unstable'], '/org.matrix.msc2965/auth_metadata')])
  @Access({ auth: 'none' })
  async metadata(): Promise<HttpReply> {
    return HttpReply.json(200, await this.service.metadata(), cached);
  }
}
