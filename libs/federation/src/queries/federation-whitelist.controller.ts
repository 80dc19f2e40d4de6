import { Controller, Get } from '@nestjs/common';
import { Access } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';

/** Tells users with which servers this one speaks. */
@Controller()
export class FederationWhitelistController {
  constructor(private readonly config: Config) {}

  /** GET /_synapse/client/v1/config/federation_whitelist */
  @Get('/_synapse/client/v1/config/federation_whitelist')
  @Access({ auth: 'required' })
  whitelist(): object {
    if (!this.config.get('federation_whitelist_endpoint_enabled')) throw MatrixError.unrecognized();
    const allowed = this.config.get('federation_domain_whitelist');
    return { whitelist_enabled: allowed !== undefined, whitelist: allowed ?? [] };
  }
}
