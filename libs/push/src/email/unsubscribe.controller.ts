import { Controller, Get, Post } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Access, HttpReply, Inbound, type InboundRequest, requiredQueryString } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { deletePusher } from '../pushers/pusher.query.js';
import { emailAppId, UnsubscribeLinks, unsubscribePath } from './unsubscribe-links.js';

const page = (title: string, body: string): string =>
  `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>${title}</title></head><body>${body}</body></html>`;

/** Ends mails about missed messages, from a link in one of them. */
@Controller()
export class UnsubscribeController {
  constructor(
    private readonly links: UnsubscribeLinks,
    private readonly database: Database,
  ) {}

  /** GET /_synapse/client/unsubscribe: changes nothing, since mail scanners follow links, too */
  @Get(unsubscribePath)
  @Access({ auth: 'none' })
  ask(@Inbound() request: InboundRequest): HttpReply {
    this.#check(request);
    const form = `<p>Stop sending mails about missed messages to this address?</p><form method="post"><button>Stop</button></form>`;
    return HttpReply.html(200, page('Unsubscribe', form));
  }

  /** POST /_synapse/client/unsubscribe: the form of that page, or a mail program's button (RFC 8058) */
  @Post(unsubscribePath)
  @Access({ auth: 'none' })
  async unsubscribe(@Inbound() request: InboundRequest): Promise<HttpReply> {
    const { userId, address } = this.#check(request);
    await this.database.write((tx) => deletePusher(tx, userId, { appId: emailAppId, pushkey: address }), {
      name: 'unsubscribe',
    });
    return HttpReply.html(200, page('Unsubscribed', '<p>You will get no more mails about missed messages.</p>'));
  }

  /** @throws MatrixError 400 `M_MISSING_PARAM`, 403 `M_FORBIDDEN` */
  #check(request: InboundRequest): { userId: string; address: string } {
    const address = requiredQueryString(request, 'pushkey');
    const userId = this.links.check(requiredQueryString(request, 'access_token'), address);
    if (userId === undefined) throw MatrixError.forbidden('This link is not one of ours');
    return { userId, address };
  }
}
