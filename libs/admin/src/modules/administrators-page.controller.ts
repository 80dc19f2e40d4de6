import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply, ownPath } from '@rookery/http';
import { adminPagesPath } from '@rookery/module-api';
import { Config, Ids } from '@rookery/platform';
import { administratorsPage } from './administrators-page.js';

/** The page in which administrators see how modules do, try settings, and use what modules bring for them. */
@Controller()
export class AdministratorsPageController {
  constructor(
    private readonly config: Config,
    private readonly ids: Ids,
  ) {}

  /** GET /_synapse/admin/pages: the same for everybody; what it shows it asks for as whoever signs in */
  @Get('/_synapse/admin/pages')
  @Access({ auth: 'none', anyProcess: true })
  page(): HttpReply {
    const nonce = this.ids.bytes(16).toString('base64url');
    const html = administratorsPage(nonce, {
      admin: ownPath(this.config, '_synapse/admin'),
      modulePages: ownPath(this.config, adminPagesPath.slice(1)),
      login: ownPath(this.config, '_matrix/client/v3/login'),
    });
    return HttpReply.page(200, { html, nonce }, { headers: { 'cache-control': 'no-store' } });
  }
}
