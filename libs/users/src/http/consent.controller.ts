import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
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
import { ConsentService } from '../consent/consent.service.js';

const linkQuery = queryOf({
  v: param.string('The version of the policy.'),
  u: param.string('The local part of who reads it.'),
  h: param.string('The signature of the link for that user.'),
});

const agreementForm = formOf({
  v: 'The version of the policy; that of the address unless given.',
  u: 'The local part of who agrees; that of the address unless given.',
  h: 'The signature of the link for that user; that of the address unless given.',
});

/** The pages of the server's policy: `user_consent.template_dir`. */
@Controller()
export class ConsentController {
  constructor(
    private readonly consent: ConsentService,
    private readonly pages: Pages,
  ) {}

  /** GET /_matrix/consent */
  @Get('/_matrix/consent')
  @Access({ auth: 'none' })
  async show(@Query(linkQuery) query: InferQuery<typeof linkQuery>): Promise<HttpReply> {
    const version = query.v ?? this.consent.version;
    const page = this.#template(version);
    const name = query.u ?? '';
    if (name === '')
      return HttpReply.page(
        200,
        this.pages.page(page, { user: '', userhmac: '', version, has_consented: false, public_version: true }),
      );
    const signature = query.h ?? '';
    const user = await this.consent.userOf(name, signature);
    return HttpReply.page(
      200,
      this.pages.page(page, {
        user: name,
        userhmac: signature,
        version,
        has_consented: user.consentVersion === version,
        public_version: false,
      }),
    );
  }

  /** POST /_matrix/consent: the form of the page */
  @Post('/_matrix/consent')
  @Access({ auth: 'none' })
  async agree(
    @Query(linkQuery) query: InferQuery<typeof linkQuery>,
    @FormBody(agreementForm) form: InferForm<typeof agreementForm>,
  ): Promise<HttpReply> {
    const [version, name, signature] = (['v', 'u', 'h'] as const).map((field) => {
      const value = form[field][0] ?? query[field];
      if (value === undefined) throw MatrixError.missingParam(`Missing parameter '${field}'`);
      return value;
    });
    const { userId } = await this.consent.userOf(name!, signature!);
    await this.consent.agree(userId, version!);
    return HttpReply.page(200, this.pages.page(this.#template('success')));
  }

  /** @throws MatrixError 404 `M_NOT_FOUND`: there is no such page, or no policy at all */
  #template(version: string | undefined): string {
    const name = `en/${version ?? ''}.html`;
    if (
      this.consent.version === undefined ||
      version === undefined ||
      !/^[\w.~-]{1,100}$/.test(version) ||
      !this.pages.has(name)
    )
      throw MatrixError.notFound('Unknown version');
    return name;
  }
}
