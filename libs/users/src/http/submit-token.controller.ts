import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  client,
  FormBody,
  formOf,
  HttpReply,
  type InferForm,
  type InferQuery,
  param,
  Query,
  queryOf,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Pages } from '@rookery/templates';
import { Config } from '@rookery/platform';
import { type EmailPurpose, EmailVerification } from '../threepids/email-verification.service.js';

const resetPath = '/_synapse/client/password_reset/email/submit_token';

const linkQuery = queryOf({
  sid: param.string('The session of the validation.'),
  client_secret: param.string('What the client made up for it.'),
  token: param.string('The token of the mail.'),
});
const resetForm = formOf({
  sid: 'The session of the validation.',
  client_secret: 'What the client made up for it.',
  token: 'The token of the mail.',
});
type ResetForm = InferForm<typeof resetForm>;
type LinkQuery = InferQuery<typeof linkQuery>;

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
  registration(@Query(linkQuery) query: LinkQuery): Promise<HttpReply> {
    return this.#submit(linkOf(query), 'registration');
  }

  /** GET /_matrix/client/unstable/add_threepid/email/submit_token */
  @Get(client(['unstable'], '/add_threepid/email/submit_token'))
  @Access({ auth: 'none' })
  addition(@Query(linkQuery) query: LinkQuery): Promise<HttpReply> {
    return this.#submit(linkOf(query), 'add_threepid');
  }

  /** GET /_synapse/client/password_reset/email/submit_token: changes nothing, since mail scanners follow links, too */
  @Get(resetPath)
  @Access({ auth: 'none' })
  async confirmReset(@Query(linkQuery) query: LinkQuery): Promise<HttpReply> {
    const { sid, clientSecret, token } = linkOf(query);
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
  reset(@Query(linkQuery) query: LinkQuery, @FormBody(resetForm) form: ResetForm): Promise<HttpReply> {
    return this.#submit(linkOf(query, form), 'password_reset');
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
function linkOf(query: LinkQuery, form?: ResetForm): Link {
  const [sid, clientSecret, token] = (['sid', 'client_secret', 'token'] as const).map((name) => {
    const value = form?.[name][0] ?? query[name];
    if (value === undefined || value.length > 1024) throw MatrixError.missingParam(`Missing parameter '${name}'`);
    return value;
  });
  return { sid: sid!, clientSecret: clientSecret!, token: token! };
}
