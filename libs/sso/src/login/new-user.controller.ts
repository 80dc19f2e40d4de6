import { Controller, Get, Post } from '@nestjs/common';
import {
  Access,
  FormBody,
  formOf,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferForm,
  type InferQuery,
  param,
  Query,
  queryOf,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { ConsentService } from '@rookery/users';
import { SsoAddresses } from '../common/sso-addresses.js';
import { SsoError } from '../common/sso-error.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { Avatars } from './avatars.service.js';
import type { NewUserSession } from './new-user-sessions.js';
import { NewUsers } from './new-users.service.js';
import { idpValues, SsoPages } from './sso-pages.js';

const bodyLimitBytes = 65_536;
const maxNameLength = 255;

const checkQuery = queryOf({
  username: param.string('The local part that somebody would like to have.', { required: true }),
});

const detailsForm = formOf({
  username: 'The local part that the user would like to have.',
  use_display_name: '`true` to take the display name that the provider suggests.',
  use_avatar: '`true` to take the avatar that the provider suggests.',
  use_email: 'The addresses to take, of those that the provider suggests.',
});
const consentForm = formOf({ accepted_version: 'The version of the terms that the user agrees to.' });

/** What people see who sign on for the first time: the choice of a name, the terms. */
@Controller()
export class NewUserController {
  constructor(
    private readonly newUsers: NewUsers,
    private readonly providers: IdentityProviders,
    private readonly avatars: Avatars,
    private readonly consent: ConsentService,
    private readonly addresses: SsoAddresses,
    private readonly pages: SsoPages,
    private readonly config: Config,
  ) {}

  /** GET /_synapse/client/pick_username/check */
  @Get('/_synapse/client/pick_username/check')
  @Access({ auth: 'none' })
  async check(
    @Inbound() request: InboundRequest,
    @Query(checkQuery) query: InferQuery<typeof checkQuery>,
  ): Promise<object> {
    const { username } = query;
    try {
      await this.newUsers.sessionOf(request);
    } catch (error) {
      if (error instanceof SsoError) throw MatrixError.invalidParam(error.description);
      throw error;
    }
    const problem = username.length > maxNameLength ? undefined : await this.newUsers.problemWith(username);
    if (!problem && username.length <= maxNameLength) return { available: true };
    return { available: false, error: problem?.message ?? 'The name is too long' };
  }

  /** GET /_synapse/client/pick_username/account_details */
  @Get('/_synapse/client/pick_username/account_details')
  @Access({ auth: 'none' })
  details(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.pages.guard(async () => {
      const { session } = await this.newUsers.sessionOf(request);
      return this.newUsers.pastChoice(session) ?? this.#details(200, session, session.suggested.localpart);
    });
  }

  /** POST /_synapse/client/pick_username/account_details: the form of that page */
  @Post('/_synapse/client/pick_username/account_details')
  @Access({ auth: 'none', bodyLimitBytes })
  choose(
    @Inbound() request: InboundRequest,
    @FormBody(detailsForm) form: InferForm<typeof detailsForm>,
  ): Promise<HttpReply> {
    return this.pages.guard(async () => {
      const { id, session } = await this.newUsers.sessionOf(request);
      const past = this.newUsers.pastChoice(session);
      if (past) return past;
      const { suggested } = session;
      const localpart = form.username[0] ?? '';
      const problem = localpart.length > maxNameLength ? true : await this.newUsers.problemWith(localpart);
      if (problem) return this.#details(400, session, localpart.slice(0, maxNameLength));
      const wanted = new Set(form.use_email);
      return this.newUsers.choose(id, session, {
        localpart,
        displayName: isTicked(form.use_display_name) ? suggested.displayName : undefined,
        picture: isTicked(form.use_avatar) ? suggested.picture : undefined,
        emails: (suggested.emails ?? []).filter((email) => wanted.has(email)),
      });
    });
  }

  /** GET /_synapse/client/new_user_consent */
  @Get('/_synapse/client/new_user_consent')
  @Access({ auth: 'none' })
  terms(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.pages.guard(async () => {
      const { session } = await this.newUsers.sessionOf(request);
      const version = this.consent.version ?? '';
      const { localpart = '', displayName } = session.chosen ?? session.suggested;
      return this.pages.page(
        200,
        'sso_new_user_consent.html',
        {
          user_id: `@${localpart}:${this.config.serverName}`,
          user_profile: { display_name: displayName },
          consent_version: version,
          terms_url: this.addresses.urlOf('_matrix/consent', { v: version }),
        },
        { formsLeadAway: true },
      );
    });
  }

  /** POST /_synapse/client/new_user_consent: the form of that page */
  @Post('/_synapse/client/new_user_consent')
  @Access({ auth: 'none', bodyLimitBytes })
  agree(
    @Inbound() request: InboundRequest,
    @FormBody(consentForm) form: InferForm<typeof consentForm>,
  ): Promise<HttpReply> {
    return this.pages.guard(async () => {
      const { id, session } = await this.newUsers.sessionOf(request);
      return this.newUsers.agree(id, session, form.accepted_version[0] ?? '');
    });
  }

  /** GET /_synapse/client/sso_register: makes the account and goes on to the client */
  @Get('/_synapse/client/sso_register')
  @Access({ auth: 'none' })
  register(@Inbound() request: InboundRequest): Promise<HttpReply> {
    return this.pages.guard(() => this.newUsers.finish(request));
  }

  #details(status: number, { providerId, suggested }: NewUserSession, localpart: string | undefined): HttpReply {
    const provider = this.providers.find(providerId);
    if (!provider) throw new SsoError('unknown_idp', 'There is no such sign-in provider here.');
    return this.pages.page(
      status,
      'sso_auth_account_details.html',
      {
        idp: idpValues(provider),
        user_attributes: {
          display_name: suggested.displayName,
          emails: suggested.emails ?? [],
          localpart,
          avatar_url: this.avatars.available ? suggested.picture : undefined,
        },
      },
      { formsLeadAway: true },
    );
  }
}

const isTicked = (values: readonly string[]): boolean => values.includes('true');
