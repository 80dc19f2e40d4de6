import { Controller, Get } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  stable,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { cookieOf, SealedCookies } from '../common/sealed-cookies.js';
import { lostSession } from '../common/sso-error.js';
import { SsoSessions } from '../common/sso-sessions.js';
import { SsoLogin } from '../login/sso-login.service.js';
import { SsoPages, withCookies } from '../login/sso-pages.js';
import { casCookie, CasProvider, type CasSession, casSessionMs } from './cas-provider.service.js';

const ticketQuery = queryOf({
  ticket: param.string('What the CAS server vouches with; it has to be there.'),
  state: param.string('Which sign-on it belongs to.'),
});

/** Where the CAS server sends browsers back to. */
@Controller()
export class CasController {
  constructor(
    private readonly provider: CasProvider,
    private readonly cookies: SealedCookies,
    private readonly sessions: SsoSessions,
    private readonly logins: SsoLogin,
    private readonly pages: SsoPages,
  ) {}

  /** GET /_matrix/client/v3/login/cas/ticket */
  @Get(stable('/login/cas/ticket'))
  @Access({ auth: 'none' })
  async ticket(
    @Inbound() request: InboundRequest,
    @Query(ticketQuery) query: InferQuery<typeof ticketQuery>,
  ): Promise<HttpReply> {
    if (!this.provider.enabled) throw MatrixError.unrecognized('This server has no sign-in through CAS');
    const { ticket, state } = query;
    if (ticket === undefined) throw MatrixError.missingParam("Missing query parameter 'ticket'");
    let removals: readonly string[] = [];
    const reply = await this.pages.guard(async () => {
      const session = this.#sessionOf(request, state);
      removals = [this.provider.removal()];
      if (!(await this.sessions.useOnce(`cas ${session.state}`, casSessionMs))) throw lostSession('invalid_session');
      return this.logins.finish(await this.provider.signOn(ticket, session, request));
    });
    return withCookies(reply, removals);
  }

  /** The sign-on that this browser began: a ticket of somebody else logs nobody in here. */
  #sessionOf(request: InboundRequest, state: string | undefined): CasSession {
    const kept = cookieOf(request, casCookie);
    if (kept === undefined || kept === '') throw lostSession('missing_session');
    const session = this.cookies.open(casCookie, kept) as unknown as CasSession | undefined;
    if (!session) throw lostSession('invalid_session');
    if (state !== session.state) throw lostSession('mismatching_session');
    return session;
  }
}
