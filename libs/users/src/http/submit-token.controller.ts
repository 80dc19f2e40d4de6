import { Controller, Get, Post } from '@nestjs/common';
import { Access, client, FormBody, HttpReply, Inbound, type InboundRequest, queryString } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Pages } from '@rookery/templates';
import { Config } from '@rookery/platform';
import { type EmailPurpose, EmailVerification } from '../threepids/email-verification.service.js';

const resetPath = '/_synapse/client/password_reset/email/submit_token';

/** What a link in a mail carries. */
interface Link {
  readonly sid: string;
  readonly clientSecret: string;
  readonly token: string;
}

/** Where the links in mails lead. */
@Controller()
export class SubmitTokenController {
  constructor(
    private readonly emails: EmailVerification,
    private readonly pages: Pages,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/unstable/registration/email/submit_token */
  @Get(client(['unstable'], '/registration/email/submit_token'))
  @Access({ auth: 'none' })
  registration(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.#submit(
      linkOf((name) => queryString(request, name)),
      'registration',
    );
  }

  /** GET /_matrix/client/unstable/add_threepid/email/submit_token */
  @Get(client(['unstable'], '/add_threepid/email/submit_token'))
  @Access({ auth: 'none' })
  addition(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.#submit(
      linkOf((name) => queryString(request, name)),
      'add_threepid',
    );
  }

  /** GET /_synapse/client/password_reset/email/submit_token: changes nothing, since mail scanners follow links, too */
  @Get(resetPath)
  @Access({ auth: 'none' })
  async confirmReset(@Inbound() request: InboundRequest): Promise<HttpReply> {
    const { sid, clientSecret, token } = linkOf((name) => queryString(request, name));
    try {
      await this.emails.check(sid, clientSecret, token);
    } catch (error) {
      return this.#failed('password_reset', error);
    }
    const page = this.config.get('email.password_reset_template_confirmation_html');
    return HttpReply.page(200, this.pages.page(page, { sid, client_secret: clientSecret, token }), {
      // The client's `next_link` comes behind the form.
      formsLeadAway: true,
    });
  }

  /** POST /_synapse/client/password_reset/email/submit_token: the form of the confirmation page */
  @Post(resetPath)
  @Access({ auth: 'none' })
  reset(@Inbound() request: InboundRequest, @FormBody() form: Record<string, string[]>): Promise<HttpReply> {
    return this.#submit(
      linkOf((name) => form[name]?.[0] ?? queryString(request, name)),
      'password_reset',
    );
  }

  async #submit({ sid, clientSecret, token }: Link, kind: EmailPurpose): Promise<HttpReply> {
    try {
      const nextLink = await this.emails.submit(sid, clientSecret, token);
      if (nextLink !== undefined) return HttpReply.redirect(nextLink);
      return HttpReply.page(200, this.pages.page(this.config.get(`email.${kind}_template_success_html`)));
    } catch (error) {
      return this.#failed(kind, error);
    }
  }

  /** @throws what is no matter of the link */
  #failed(kind: EmailPurpose, error: unknown): HttpReply {
    if (!MatrixError.is(error)) throw error;
    const page = this.config.get(`email.${kind}_template_failure_html`);
    return HttpReply.page(error.status, this.pages.page(page, { failure_reason: error.message }));
  }
}

/** @throws MatrixError 400 `M_MISSING_PARAM` */
function linkOf(read: (name: string) => string | undefined): Link {
  const [sid, clientSecret, token] = ['sid', 'client_secret', 'token'].map((name) => {
    const value = read(name);
    if (value === undefined || value.length > 1024) throw MatrixError.missingParam(`Missing parameter '${name}'`);
    return value;
  });
  return { sid: sid!, clientSecret: clientSecret!, token: token! };
}
