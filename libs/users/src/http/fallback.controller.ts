import { Controller, Get, Param, Post } from '@nestjs/common';
import {
  Access,
  FormBody,
  formOf,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferForm,
  type InferQuery,
  ownPath,
  param,
  Query,
  queryOf,
  stable,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { Pages } from '@rookery/templates';
import { AuthenticationService } from '../authentication/authentication-service.js';
import { UiaService } from '../uia/uia.service.js';

const stageForm = formOf({
  session: 'The session of interactive auth.',
  'g-recaptcha-response': 'What the challenge has given, for `m.login.recaptcha`.',
  token: 'The token, for `m.login.registration_token`.',
});

/** A stage that has a page: its template, the field of its form, and what the stage calls that. */
interface FallbackPage {
  readonly template: string;
  readonly field?: readonly [form: keyof InferForm<typeof stageForm>, auth: string];
}

const fallbacks: ReadonlyMap<string, FallbackPage> = new Map([
  ['m.login.recaptcha', { template: 'recaptcha.html', field: ['g-recaptcha-response', 'response'] }],
  ['m.login.terms', { template: 'terms.html' }],
  ['m.login.registration_token', { template: 'registration_token.html', field: ['token', 'token'] }],
]);

const showQuery = queryOf({
  session: param.string('The session of interactive auth; not for `m.oauth`, whose page is elsewhere.'),
});

const submitQuery = queryOf({
  session: param.string('The session of interactive auth, where the form does not say it.'),
});

/** Pages for clients that cannot show a stage themselves. @spec client-server-api#fallback */
@Controller()
export class FallbackController {
  constructor(
    private readonly uia: UiaService,
    private readonly pages: Pages,
    private readonly config: Config,
    private readonly service: AuthenticationService,
  ) {}

  /** GET /_matrix/client/v3/auth/{stage}/fallback/web */
  @Get(stable('/auth/:stage/fallback/web'))
  @Access({ auth: 'none' })
  async show(@Query(showQuery) query: InferQuery<typeof showQuery>, @Param('stage') stage: string): Promise<HttpReply> {
    if (stage === 'm.oauth' && this.service.isEnabled) return HttpReply.redirect(await this.service.keyResetUrl());
    const { session } = query;
    if (session === undefined) throw MatrixError.missingParam("Missing query parameter 'session'");
    const page = this.#pageOf(stage);
    if (!(await this.uia.describe(session))) throw MatrixError.noSuchSession();
    return this.#page(200, page, stage, session, undefined);
  }

  /** POST /_matrix/client/v3/auth/{stage}/fallback/web */
  @Post(stable('/auth/:stage/fallback/web'))
  @Access({ auth: 'none' })
  async submit(
    @Inbound() request: InboundRequest,
    @Query(submitQuery) query: InferQuery<typeof submitQuery>,
    @Param('stage') stage: string,
    @FormBody(stageForm) form: InferForm<typeof stageForm>,
  ): Promise<HttpReply> {
    const page = this.#pageOf(stage);
    const session = form.session[0] ?? query.session;
    if (session === undefined) throw MatrixError.missingParam("Missing parameter 'session'");
    const fields = page.field ? { [page.field[1]]: form[page.field[0]][0] } : {};
    try {
      await this.uia.attemptFromPage(session, stage, fields, request);
    } catch (error) {
      if (!MatrixError.is(error) || error.status === 404 || error.status >= 500) throw error;
      return this.#page(error.status === 401 ? 403 : error.status, page, stage, session, error.message);
    }
    return HttpReply.page(200, this.pages.page('auth_success.html'));
  }

  #pageOf(stage: string): FallbackPage {
    const page = fallbacks.get(stage);
    if (!page) throw MatrixError.notFound('This stage has no page');
    return page;
  }

  #page(
    status: number,
    { template }: FallbackPage,
    stage: string,
    session: string,
    error: string | undefined,
  ): HttpReply {
    const params = this.uia.stage('m.login.terms')?.params?.() as
      { policies?: { privacy_policy?: { en?: { name?: string; url?: string } } } } | undefined;
    const policy = params?.policies?.privacy_policy?.en;
    return HttpReply.page(
      status,
      this.pages.page(template, {
        session,
        myurl: ownPath(this.config, `_matrix/client/v3/auth/${stage}/fallback/web`),
        sitekey: this.config.get('recaptcha_public_key'),
        terms_url: policy?.url,
        policy_name: policy?.name,
        error,
      }),
    );
  }
}
