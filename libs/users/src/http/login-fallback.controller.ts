import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply, ownPath, ownUrl } from '@rookery/http';
import { Config } from '@rookery/platform';
import { Pages } from '@rookery/templates';

/** The address of the page, with a standard prefix. */
const path = '_matrix/static/client/login/';

/** The login for apps that cannot show one themselves. @spec client-server-api#login-fallback */
@Controller()
export class LoginFallbackController {
  constructor(
    private readonly pages: Pages,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/static/client/login/ */
  @Get(`/${path}`)
  @Access({ auth: 'none' })
  show(): HttpReply {
    return HttpReply.page(
      200,
      this.pages.page('login_fallback.html', {
        login_url: ownPath(this.config, '_matrix/client/v3/login'),
        sso_url: ownPath(this.config, '_matrix/client/v3/login/sso/redirect'),
        own_url: ownUrl(this.config, path),
      }),
    );
  }
}
