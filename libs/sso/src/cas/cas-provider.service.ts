import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { mapUsernameToMxidLocalpart } from '@rookery/module-api';
import { Config, Ids, settingError } from '@rookery/platform';
import { checkRequirements } from '../common/attribute-requirements.js';
import { SealedCookies } from '../common/sealed-cookies.js';
import { SsoAddresses } from '../common/sso-addresses.js';
import { providerError, SsoError } from '../common/sso-error.js';
import type { SignOnRedirect, IdentityProvider, SignOn, SsoPurpose } from '../providers/identity-provider.js';
import { IdentityProviders } from '../providers/identity-providers.js';
import { checkRemoteId } from '../providers/mapping-call.js';
import { ProviderHttp } from '../providers/provider-http.js';
import type { CasPrincipal } from './cas-response.js';
import type { BrowserRequest } from '../common/browser-request.js';

export const casCookie = 'cas_session';
export const casSessionMs = 3_600_000;
const cookiePath = '_matrix/client';
/** The oldest address of it: registries of CAS servers hold that one. The newer ones are answered as well. */
const ticketPath = '_matrix/client/r0/login/cas/ticket';
const maxTicketLength = 4_096;

/** A sign-on under way, in the browser's keeping. */
export interface CasSession {
  readonly state: string;
  readonly purpose: SsoPurpose;
}

/** The CAS server of `cas_config`. */
@Injectable()
export class CasProvider implements IdentityProvider, OnModuleInit {
  readonly id = 'cas';
  #requirements: { attribute: string; one_of?: string[] }[] = [];

  constructor(
    private readonly config: Config,
    private readonly ids: Ids,
    private readonly http: ProviderHttp,
    private readonly cookies: SealedCookies,
    private readonly addresses: SsoAddresses,
    private readonly providers: IdentityProviders,
  ) {}

  /** @throws SettingsError with file and line */
  onModuleInit(): void {
    if (!this.enabled) return;
    const required = this.config.get('cas_config.required_attributes');
    this.#requirements = Object.entries(required).map(([attribute, value]) => {
      if (value === null || value === undefined) return { attribute };
      const values = (Array.isArray(value) ? value : [value]) as unknown[];
      if (!values.every((one) => ['string', 'number', 'boolean'].includes(typeof one)))
        throw settingError(
          this.config,
          'cas_config.required_attributes',
          [attribute],
          'expected a text, a list of texts, or null',
        );
      return { attribute, one_of: values.map(String) };
    });
    this.providers.add(this);
  }

  get enabled(): boolean {
    return this.config.get('cas_config.enabled') === true && this.config.get('cas_config.server_url') !== undefined;
  }
  get name(): string {
    return this.config.get('cas_config.idp_name');
  }
  get icon(): string | undefined {
    return this.config.get('cas_config.idp_icon');
  }
  get brand(): string | undefined {
    return this.config.get('cas_config.idp_brand');
  }
  get registers(): boolean {
    return this.config.get('cas_config.enable_registration');
  }

  begin(purpose: SsoPurpose): Promise<SignOnRedirect> {
    const session: CasSession = { purpose, state: this.ids.bytes(24).toString('base64url') };
    const sealed = this.cookies.seal(casCookie, session as unknown as JsonObject, casSessionMs);
    if (sealed === undefined) throw new SsoError('bad_param', 'The address of the app is too long.');
    const location = new URL(`${this.#server}/login`);
    location.searchParams.set('service', this.#serviceOf(session));
    return Promise.resolve({
      location: location.href,
      cookies: [this.cookies.header(casCookie, sealed, { path: cookiePath, lifetimeMs: casSessionMs, site: 'lax' })],
    });
  }

  /** The `Set-Cookie` header that takes the session back. */
  removal(): string {
    return this.cookies.removal(casCookie, { path: cookiePath, site: 'lax' });
  }

  /**
   * Whom the server vouches for by a ticket.
   * @throws SsoError
   */
  async signOn(ticket: string, session: CasSession, request: BrowserRequest): Promise<SignOn> {
    const principal = await this.#validate(ticket, session);
    checkRequirements(this.#requirements, principal.attributes);
    const remoteId = checkRemoteId(principal.user);
    const localpart = this.#localpartOf(remoteId);
    const nameAttribute = this.config.get('cas_config.displayname_attribute');
    const displayName = nameAttribute === undefined ? undefined : principal.attributes[nameAttribute]?.[0];
    return {
      provider: this,
      remoteId,
      purpose: session.purpose,
      request,
      cookies: [],
      attributes: (failures) => ({ localpart: localpart + (failures > 0 ? String(failures) : ''), displayName }),
      // Accounts that came by CAS were once not told apart from others of the same name.
      existingLocalpart: () => localpart,
    };
  }

  #localpartOf(user: string): string {
    const numeric = /^\d+$/.test(user) && this.config.get('cas_config.allow_numeric_ids');
    return mapUsernameToMxidLocalpart(numeric ? this.config.get('cas_config.numeric_ids_prefix') + user : user);
  }

  async #validate(ticket: string, session: CasSession): Promise<CasPrincipal> {
    if (ticket === '' || ticket.length > maxTicketLength)
      throw new SsoError('invalid_request', 'The sign-in provider sent an answer of the wrong kind.');
    const path = this.config.get('cas_config.protocol_version') === 3 ? 'p3/proxyValidate' : 'proxyValidate';
    const url = new URL(`${this.#server}/${path}`);
    url.searchParams.set('ticket', ticket);
    url.searchParams.set('service', this.#serviceOf(session));
    let answer: { readonly status: number; readonly body: Buffer };
    try {
      answer = await this.http.request({ url, headers: { accept: 'application/xml, text/xml' } });
    } catch (error) {
      throw SsoError.unavailable(error);
    }
    // Loaded by the first who signs on.
    const { readCasResponse } = await import('./cas-response.js');
    const read = answer.status === 200 ? readCasResponse(answer.body.toString('utf8')) : undefined;
    if (!read)
      throw new SsoError('invalid_response', 'The sign-in provider sent an answer of the wrong kind.', 502, {
        cause: new Error(`The validation of a ticket was answered with status ${answer.status}`),
      });
    if ('code' in read) throw providerError(read.code, read.description);
    return read;
  }

  get #server(): string {
    return (this.config.get('cas_config.server_url') ?? '').replace(/\/+$/, '');
  }

  /** Where the server sends the browser back; the same when the ticket is validated. */
  #serviceOf({ state }: CasSession): string {
    return this.addresses.urlOf(ticketPath, { state });
  }
}
