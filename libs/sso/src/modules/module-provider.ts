import type { JsonObject } from '@rookery/matrix-types';
import { MatrixError } from '@rookery/matrix-types';
import {
  type ProviderLogout,
  RedirectError,
  type SignedOn,
  type SignOnContext,
  type SignOnProfile,
} from '@rookery/module-api';
import type { ModuleIdentityProvider } from '@rookery/module-host';
import type { Clock, Ids } from '@rookery/platform';
import { type CookieOptions, cookieOf, type SealedCookies } from '../common/sealed-cookies.js';
import type { SsoAddresses } from '../common/sso-addresses.js';
import { lostSession, SsoError } from '../common/sso-error.js';
import type { SignOnRedirect, IdentityProvider, SignOn, SsoPurpose } from '../providers/identity-provider.js';
import { askMapping, within } from '../providers/mapping-call.js';
import { checkLogout, checkRefresh, checkStep, type CheckedStep } from './module-steps.js';
import type { BrowserRequest } from '../common/browser-request.js';

/** How long somebody may be away at the provider. */
export const moduleSessionMs = 3_600_000;

/** A sign-on under way, in the browser's keeping. */
export interface ModuleSession {
  readonly idp: string;
  readonly purpose: SsoPurpose;
  /** Of this sign-on, from its beginning to its end. */
  readonly nonce: string;
  /** JSON of what the module wants to find again. */
  readonly state?: string | undefined;
}

/** What providers of modules share. */
export interface ModuleProviderParts {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly cookies: SealedCookies;
  readonly addresses: SsoAddresses;
}

/** A place where people sign on that a module registered. */
export class ModuleProvider implements IdentityProvider {
  readonly id: string;
  readonly name: string;
  readonly icon: string | undefined;
  readonly brand: string | undefined;
  readonly registers: boolean;

  constructor(
    private readonly registered: ModuleIdentityProvider,
    private readonly parts: ModuleProviderParts,
  ) {
    const { id, name, icon, brand, registers } = registered.provider;
    this.id = id;
    this.name = name;
    this.icon = icon;
    this.brand = brand;
    this.registers = registers ?? true;
  }

  /** Name of the module. */
  get module(): string {
    return this.registered.module;
  }

  /** Whether it ends sessions by itself. */
  get logsOut(): boolean {
    return this.registered.provider.logout !== undefined;
  }

  /** Whether it is asked when a session goes on. */
  get refreshes(): boolean {
    return this.registered.provider.refresh !== undefined;
  }

  async begin(purpose: SsoPurpose, request: BrowserRequest): Promise<SignOnRedirect> {
    const session: ModuleSession = {
      idp: this.id,
      purpose,
      nonce: this.parts.ids.bytes(24).toString('base64url'),
    };
    const step = await this.ask(request, session, 'begin');
    if (step.kind === 'refused') throw new SsoError(step.error, step.description, step.status);
    if (step.kind === 'redirect')
      return { location: step.location, cookies: this.keep({ ...session, state: step.state }) };
    // A page of its own: shown where the browser brings what it keeps.
    return { location: this.#urlOf('begin'), cookies: this.keep(session) };
  }

  /** Asks the module for the next step. @throws SsoError, RedirectError */
  ask(request: BrowserRequest, session: ModuleSession, method: 'begin' | 'callback'): Promise<CheckedStep> {
    const { provider } = this.registered;
    const context = this.#contextOf(request, session.purpose);
    return this.#guard(method, async () =>
      checkStep(
        await (method === 'begin'
          ? provider.begin(context)
          : provider.callback({
              ...context,
              state: session.state === undefined ? undefined : (JSON.parse(session.state) as unknown),
            })),
      ),
    );
  }

  /** `Set-Cookie` headers that keep a sign-on in the browser. @throws SsoError `bad_param` */
  keep(session: ModuleSession): string[] {
    const { cookies } = this.parts;
    const sealed = cookies.seal(this.#seal, session as unknown as JsonObject, moduleSessionMs);
    if (sealed === undefined) throw new SsoError('bad_param', 'The address of the app is too long.');
    return this.#cookies.map(([name, options]) =>
      cookies.header(name, sealed, { ...options, lifetimeMs: moduleSessionMs }),
    );
  }

  /** `Set-Cookie` headers that take back what {@link keep} gave out. */
  forget(): string[] {
    return this.#cookies.map(([name, options]) => this.parts.cookies.removal(name, options));
  }

  /** The sign-on that this browser began. @throws SsoError */
  sessionOf(request: BrowserRequest): ModuleSession {
    const kept = this.#cookies.map(([name]) => cookieOf(request, name)).find((one) => one !== undefined && one !== '');
    if (kept === undefined) throw lostSession('missing_session');
    const session = this.parts.cookies.open(this.#seal, kept) as ModuleSession | undefined;
    if (!session) throw lostSession('invalid_session');
    return session;
  }

  /** Somebody whom the module vouches for. */
  signOn(person: SignedOn, session: ModuleSession, request: BrowserRequest, cookies: readonly string[]): SignOn {
    const { clock } = this.parts;
    const { provider } = this.registered;
    const profile = (failures: number): Promise<SignOnProfile> =>
      askMapping(clock, () => provider.profile(person, failures));
    return {
      provider: this,
      remoteId: person.remoteId,
      sessionId: person.sessionId,
      purpose: session.purpose,
      request,
      cookies,
      attributes: async (failures) => {
        const { localpart, confirmLocalpart, displayName, picture, emails } = await profile(failures);
        return {
          localpart: textOf(localpart),
          confirmLocalpart: confirmLocalpart === true,
          displayName: textOf(displayName),
          picture: textOf(picture),
          emails: Array.isArray(emails) ? emails.filter((email) => typeof email === 'string') : [],
        };
      },
      existingLocalpart: async () => textOf((await profile(0)).existingLocalpart),
      extraFields: async () => (await profile(0)).extraFields,
    };
  }

  /** Whom the provider logs out. @throws MatrixError of the module; SsoError */
  async logout(request: BrowserRequest): Promise<ProviderLogout | undefined> {
    const { provider } = this.registered;
    return this.#guard('logout', async () => checkLogout(await provider.logout?.(this.#webRequest(request))));
  }

  /**
   * Asks whether somebody is still signed on. @returns tokens for the next time, as JSON; `undefined`: not any more
   * @throws SsoError when the provider cannot tell
   */
  async refresh(tokens: string): Promise<string | undefined> {
    const { provider } = this.registered;
    return this.#guard('refresh', async () => {
      return checkRefresh(await provider.refresh?.(JSON.parse(tokens) as unknown));
    });
  }

  /** Runs code of the module: bounded in time, and what it fails with has the module's name. */
  async #guard<T>(method: string, work: () => Promise<T>): Promise<T> {
    try {
      return await within(this.parts.clock, work);
    } catch (error) {
      if (RedirectError.is(error) || error instanceof SsoError) throw error;
      if (MatrixError.is(error) && error.status < 500) throw SsoError.from(error);
      throw SsoError.unavailable(
        new Error(`${method}() of the sign-in provider ${this.id} of module ${this.module} failed`, { cause: error }),
      );
    }
  }

  #contextOf(request: BrowserRequest, purpose: SsoPurpose): SignOnContext {
    return {
      request: this.#webRequest(request),
      callbackUrl: this.#urlOf('callback'),
      purpose: purpose.kind,
      requestId: request.requestId,
      ip: request.ip,
      userAgent: request.userAgent,
    };
  }

  #webRequest({ url, method, headers: given, rawBody }: BrowserRequest): Request {
    const headers = new Headers();
    for (const [name, value] of Object.entries(given)) {
      // What the browser keeps for the server is none of the module's business.
      if (name === 'cookie' || name === 'authorization' || value === undefined) continue;
      for (const one of typeof value === 'string' ? [value] : value) headers.append(name, one);
    }
    const [path = '', search = ''] = url.slice(1).split(/\?(.*)/s, 2);
    const address = this.parts.addresses.urlOf(path) + (search === '' ? '' : `?${search}`);
    return new Request(address, {
      method,
      headers,
      ...(rawBody === undefined || method === 'GET' ? {} : { body: new Uint8Array(rawBody) }),
    });
  }

  get #seal(): string {
    return `module sign-on ${this.id}`;
  }

  get #path(): string {
    return `_synapse/client/sso/${encodeURIComponent(this.id)}`;
  }

  #urlOf(step: 'begin' | 'callback'): string {
    return this.parts.addresses.urlOf(`${this.#path}/${step}`);
  }

  /** Two, since some browsers forget cookies with an attribute that they do not know. */
  get #cookies(): readonly (readonly [name: string, options: Omit<CookieOptions, 'lifetimeMs'>])[] {
    return [
      ['sign_on_session', { path: this.#path, site: 'cross-site' }],
      ['sign_on_session_no_samesite', { path: this.#path, site: 'legacy' }],
    ];
  }
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
