import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  client,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  Who,
} from '@rookery/http';
import { Config, type Requester } from '@rookery/platform';
import { Pages } from '@rookery/templates';
import { AccountRenewal } from '../accounts/account-renewal.service.js';

const paths = (path: string): string[] => client(['v3', 'unstable'], `/account_validity/${path}`);

const renewQuery = queryOf({
  token: param.string('The token of the mail.', { required: true }),
});

@Controller()
export class AccountRenewalController {
  constructor(
    private readonly renewal: AccountRenewal,
    private readonly pages: Pages,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/unstable/account_validity/renew: the link of a mail */
  @Get(paths('renew'))
  @Access({ auth: 'none' })
  async renew(
    @Inbound() request: InboundRequest,
    @Query(renewQuery) query: InferQuery<typeof renewQuery>,
  ): Promise<HttpReply> {
    const { valid, stale, expirationTs } = await this.renewal.renew(query.token, { request });
    const values = { expiration_ts: expirationTs };
    if (valid)
      return HttpReply.page(
        200,
        this.pages.page(this.config.get('account_validity.account_renewed_html_path'), values),
      );
    if (stale) return HttpReply.page(200, this.pages.page('account_previously_renewed.html', values));
    return HttpReply.page(404, this.pages.page(this.config.get('account_validity.invalid_token_html_path'), values));
  }

  /** POST /_matrix/client/unstable/account_validity/renew */
  @Post(paths('renew'))
  @Access({ auth: 'none' })
  renewByPost(
    @Inbound() request: InboundRequest,
    @Query(renewQuery) query: InferQuery<typeof renewQuery>,
  ): Promise<HttpReply> {
    return this.renew(request, query);
  }

  /** POST /_matrix/client/unstable/account_validity/send_mail */
  @Post(paths('send_mail'))
  @Access({ auth: 'required', expired: true })
  async sendMail(@Who() requester: Requester): Promise<object> {
    await this.renewal.sendMail(requester.userId, { requester });
    return {};
  }
}
