import { Controller, Get, Post } from '@nestjs/common';
import { Database } from '@rookery/database';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  wantsPage,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Pages } from '@rookery/templates';
import { UnsubscribeLinks, unsubscribePath } from '../email/unsubscribe-links.js';
import { emailAppId } from '../pushers/pusher.js';
import { forgetPusher } from '../pushers/pusher-keys.js';

// A person whose link is not whole sees a page: no parameter is required here.
const linkQuery = queryOf({
  pushkey: param.string('The address that mails went to.'),
  access_token: param.string('The token of the link.'),
});
type LinkQuery = InferQuery<typeof linkQuery>;

/** Whose mails about missed messages a link ends. */
interface Link {
  readonly userId: string;
  readonly address: string;
}

/** Ends mails about missed messages, from a link in one of them. */
@Controller()
export class UnsubscribeController {
  constructor(
    private readonly links: UnsubscribeLinks,
    private readonly database: Database,
    private readonly pages: Pages,
  ) {}

  /** GET /_synapse/client/unsubscribe: changes nothing, since mail scanners follow links, too */
  @Get(unsubscribePath)
  @Access({ auth: 'none' })
  ask(@Inbound() request: InboundRequest, @Query(linkQuery) query: LinkQuery): Promise<HttpReply> {
    return this.#withLink(request, query, async () => HttpReply.page(200, this.pages.page('unsubscribe.html')));
  }

  /** POST /_synapse/client/unsubscribe: the form of that page, or a mail program's button (RFC 8058) */
  @Post(unsubscribePath)
  @Access({ auth: 'none' })
  unsubscribe(@Inbound() request: InboundRequest, @Query(linkQuery) query: LinkQuery): Promise<HttpReply> {
    return this.#withLink(request, query, async ({ userId, address }) => {
      await this.database.write((tx) => forgetPusher(tx, userId, { appId: emailAppId, pushkey: address }), {
        name: 'unsubscribe',
      });
      return HttpReply.page(200, this.pages.page('unsubscribe.html', { done: true }));
    });
  }

  /** A person whose link is wrong sees a page; programs are told as everywhere. */
  async #withLink(
    request: InboundRequest,
    query: LinkQuery,
    answer: (link: Link) => Promise<HttpReply>,
  ): Promise<HttpReply> {
    let link: Link;
    try {
      link = this.#check(query);
    } catch (error) {
      if (!MatrixError.is(error) || !wantsPage(request.headers)) throw error;
      return HttpReply.page(error.status, this.pages.page('invalid_token.html'));
    }
    return answer(link);
  }

  /** @throws MatrixError 400 `M_MISSING_PARAM`, 403 `M_FORBIDDEN` */
  #check({ pushkey: address, access_token: token }: LinkQuery): Link {
    if (address === undefined || token === undefined) throw MatrixError.missingParam('The link is not whole');
    const userId = this.links.check(token, address);
    if (userId === undefined) throw MatrixError.forbidden('This link is not one of ours');
    return { userId, address };
  }
}
