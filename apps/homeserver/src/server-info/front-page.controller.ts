import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply } from '@rookery/http';
import { Config } from '@rookery/platform';
import { Pages } from '@rookery/templates';

/** What a person sees who opens the server's address in a browser. */
@Controller()
export class FrontPageController {
  constructor(
    private readonly config: Config,
    private readonly pages: Pages,
  ) {}

  /** GET /, and the address of this page where a proxy passes on the paths of Matrix only */
  @Get('/')
  @Access({ auth: 'none' })
  frontPage(): HttpReply {
    const webClient = this.config.get('web_client_location');
    return webClient === undefined ? this.greeting() : HttpReply.redirect(webClient);
  }

  /** GET /_matrix/static/ */
  @Get('/_matrix/static/')
  @Access({ auth: 'none' })
  greeting(): HttpReply {
    return HttpReply.page(200, this.pages.page('front_page.html'));
  }
}
