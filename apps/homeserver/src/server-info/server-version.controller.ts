import { Controller, Get } from '@nestjs/common';
import { Access } from '@rookery/http';
import { version } from '../version.js';

/** The running version, by which an operator sees that an upgrade succeeded. */
@Controller()
export class ServerVersionController {
  /** GET /_synapse/admin/v1/server_version */
  @Get('/_synapse/admin/v1/server_version')
  @Access({ auth: 'none' })
  serverVersion(): object {
    return { server_version: `Rookery ${version}` };
  }
}
