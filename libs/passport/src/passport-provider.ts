import type { IdentityProvider, SignedOn, SignOnCallback, SignOnContext, SignOnStep } from '@rookery/module-api';
import { formPage, type LoginForm } from './login-form.js';
import { identifyProfile, profileOf } from './profiles.js';
import { ask, type PassportStrategy, type StrategyContext } from './strategy.js';

/** A Passport strategy as a sign-in provider. What is not said here is as in `IdentityProvider` of the module API. */
export interface PassportProviderOptions<User> extends Pick<
  IdentityProvider,
  'id' | 'name' | 'icon' | 'brand' | 'registers' | 'logout' | 'refresh'
> {
  /** Makes the strategy for one step of one sign-on. */
  strategy(context: StrategyContext): PassportStrategy | Promise<PassportStrategy>;
  /** Options of `authenticate`: `{ scope: ['user:email'] }`. */
  authenticateOptions?(context: StrategyContext): Readonly<Record<string, unknown>>;
  /** For strategies that check what people type; without it the strategy has to lead elsewhere. */
  readonly form?: LoginForm | undefined;
  /** Whom the user that the strategy's `verify` function gave is; default: by a Passport profile. */
  identify?(user: User, info: unknown): SignedOn | Promise<SignedOn>;
  /** What an account is made of; default: of a Passport profile. */
  profile?: IdentityProvider['profile'] | undefined;
}

/**
 * A Passport strategy as a sign-in provider, for `api.registerIdentityProvider`.
 *
 * ```ts
 * api.registerIdentityProvider(
 *   passportProvider({
 *     id: 'github',
 *     name: 'GitHub',
 *     brand: 'github',
 *     strategy: ({ callbackUrl }) =>
 *       new GitHubStrategy({ clientID, clientSecret, callbackURL: callbackUrl, state: true }, keepProfile),
 *   }),
 * );
 * ```
 */
export function passportProvider<User = unknown>(options: PassportProviderOptions<User>): IdentityProvider {
  const { id, name, icon, brand, registers, form, logout, refresh, profile = profileOf } = options;

  const page = (
    context: SignOnContext,
    state: unknown,
    message?: string,
    typed?: Record<string, unknown>,
  ): SignOnStep => ({
    page: formPage(form ?? { title: name }, context.callbackUrl, message, typed),
    status: message === undefined ? 200 : 403,
    state,
  });

  const step = async (context: SignOnContext, state: unknown): Promise<SignOnStep> => {
    const session = { ...(state as Record<string, unknown> | undefined) };
    const { callbackUrl, purpose, request } = context;
    const asked: StrategyContext = { callbackUrl, purpose, session };
    const typed = form && request.method === 'POST' ? await typedIn(request) : undefined;
    let outcome;
    try {
      const strategy = await options.strategy(asked);
      outcome = await ask(strategy, context, session, options.authenticateOptions?.(asked) ?? {});
    } catch (error) {
      const refused = refusalOf(error);
      if (!refused) throw error;
      outcome = refused;
    }
    switch (outcome.kind) {
      case 'success': {
        const identify = options.identify ?? identifyProfile;
        return { identity: await identify(outcome.user as User, outcome.info) };
      }
      case 'redirect':
        return { redirect: outcome.location, state: session };
      case 'page':
        return { page: outcome.html, status: outcome.status, state: session };
      case 'fail': {
        const message = messageOf(outcome.challenge);
        if (form) return page(context, session, message ?? 'That was not right. Try again.', typed);
        return {
          refused: {
            error: 'unauthorised',
            description: message ?? `${name} did not let you in.`,
            status: outcome.status !== undefined && outcome.status >= 400 ? Math.min(outcome.status, 499) : 403,
          },
        };
      }
      default:
        return {
          refused: { error: 'not_handled', description: `${name} sent an answer of the wrong kind.`, status: 400 },
        };
    }
  };

  return {
    id,
    name,
    icon,
    brand,
    registers,
    begin: (context) => (form ? page(context, undefined) : step(context, undefined)),
    callback: (context: SignOnCallback) =>
      form && context.request.method !== 'POST' ? page(context, context.state) : step(context, context.state),
    profile,
    ...(logout ? { logout } : {}),
    ...(refresh ? { refresh } : {}),
  };
}

async function typedIn(request: Request): Promise<Record<string, unknown>> {
  return Object.fromEntries(new URLSearchParams(await request.clone().text()));
}

/** A provider that refuses somebody is no fault of anybody: strategies tell it by an error with a status below 500. */
function refusalOf(
  error: unknown,
): { readonly kind: 'fail'; readonly challenge: unknown; readonly status: number } | undefined {
  const status = (error as { status?: unknown } | undefined)?.status;
  if (!(error instanceof Error) || typeof status !== 'number' || status < 400 || status >= 500) return undefined;
  return { kind: 'fail', challenge: error.message, status };
}

/** What a strategy says of a failure: words, or an object with them. A challenge for a header (`Basic realm=…`) is none. */
function messageOf(challenge: unknown): string | undefined {
  const words =
    typeof challenge === 'object' && challenge !== null ? (challenge as { message?: unknown }).message : challenge;
  return typeof words === 'string' && words !== '' && !/^\w+ realm=/.test(words) ? words : undefined;
}
