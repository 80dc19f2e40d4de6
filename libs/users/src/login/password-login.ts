import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { AuthSuccess } from '@rookery/module-api';
import { Config, type RequestOrigin } from '@rookery/platform';
import { type Account, findAccount } from '../store/account.query.js';
import { AccountService } from '../accounts/account.service.js';
import { AccountModules } from '../common/account-modules.js';
import { isLocalUser, qualifyUserId } from '../common/user-names.js';
import { canonicalAddress, canonicalPhone } from '../threepids/addresses.js';
import { userOfThreepid } from '../threepids/threepid.query.js';
import type { SessionProof } from '../sessions/session.service.js';

/** Somebody who proved to be a user. */
export interface Proved {
  readonly userId: string;
  /** What has to hold still when the session is opened. A module's word cannot be taken back. */
  readonly proof?: SessionProof | undefined;
  /** Told by a module to be called with the answer. */
  readonly onLogin?: AuthSuccess['onLogin'];
  /** For an account that the proof brings into being. */
  readonly displayName?: string | undefined;
}

/** Whom a login names. */
type Claim =
  | { readonly kind: 'user'; readonly name: string }
  | { readonly kind: 'threepid'; readonly medium: string; readonly address: string };

/**
 * Password logins: by name, email or phone number, checked by modules and by our own database.
 *
 * Whatever is wrong, the answer is the same and takes the same time, so that it does not tell who has an account.
 */
@Injectable()
export class PasswordLogin {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
  ) {}

  /**
   * Checks a login with a password.
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`, `M_BAD_JSON`; 403 `M_FORBIDDEN`; 429 `M_LIMIT_EXCEEDED`
   */
  check(body: JsonObject, request: RequestOrigin): Promise<Proved> {
    return this.#check(body, request, claimOf(body));
  }

  /**
   * Checks the password of somebody who is logged in.
   * @returns who was proved
   * @throws MatrixError as {@link check}
   */
  async checkOwn(userId: string, auth: JsonObject, request: RequestOrigin): Promise<string> {
    // The user is known; clients that name nobody mean themselves.
    const claim = namesSomebody(auth) ? claimOf(auth) : { kind: 'user' as const, name: userId };
    return (await this.#check(auth, request, claim)).userId;
  }

  async #check(body: JsonObject, request: RequestOrigin, claim: Claim): Promise<Proved> {
    const { password } = body;
    if (password === undefined) throw MatrixError.missingParam("Missing parameter 'password'");
    if (typeof password !== 'string') throw MatrixError.badJson("'password' must be a string");
    const account = await this.#accountOf(claim);
    const userId =
      claim.kind === 'user' ? (account?.userId ?? qualifyUserId(claim.name, this.config.serverName)) : account?.userId;
    const key = (userId ?? (claim.kind === 'threepid' ? `${claim.medium}:${claim.address}` : ''))
      .toLowerCase()
      .slice(0, 255);
    if (!(await this.limiter.mayTake('rc_login.failed_attempts', key)))
      await this.limiter.take('rc_login.failed_attempts', key);
    const proved =
      (await this.#askModules(claim, userId, password, body, request)) ?? (await this.#askDatabase(account, password));
    if (proved) return proved;
    // Counted; that the bucket is now empty is told to the next attempt.
    await this.limiter.take('rc_login.failed_attempts', key).catch(() => undefined);
    throw MatrixError.forbidden('Wrong user name or password');
  }

  async #accountOf(claim: Claim): Promise<Account | undefined> {
    if (claim.kind === 'user') {
      if (claim.name.startsWith('@') && !isLocalUser(claim.name, this.config.serverName)) return undefined;
      return claim.name.length > 255 ? undefined : this.accounts.findByName(claim.name);
    }
    const userId = await userOfThreepid(this.database, claim.medium, claim.address);
    return userId === undefined ? undefined : findAccount(this.database, userId);
  }

  async #askModules(
    claim: Claim,
    userId: string | undefined,
    password: string,
    body: JsonObject,
    request: RequestOrigin,
  ): Promise<Proved | undefined> {
    const success =
      claim.kind === 'threepid'
        ? ((await this.modules.checkThreepidAuth(claim.medium, claim.address, password, { request })) ??
          (userId === undefined
            ? undefined
            : await this.modules.checkAuth(userId, 'm.login.password', { ...body, password }, { request })))
        : await this.modules.checkAuth(userId!, 'm.login.password', { ...body, password }, { request });
    return success && { userId: success.userId, onLogin: success.onLogin };
  }

  async #askDatabase(account: Account | undefined, password: string): Promise<Proved | undefined> {
    if (!this.config.get('password_config.localdb_enabled')) return undefined;
    const passwordHash = await this.accounts.matchingHash(account, password);
    return passwordHash !== undefined && account ? { userId: account.userId, proof: { passwordHash } } : undefined;
  }
}

/** Whether a stage of interactive auth says whose proof it brings; null is absent. */
export const namesSomebody = (auth: JsonObject): boolean =>
  (auth['identifier'] ?? auth['user'] ?? undefined) !== undefined;

/** Whom a body names, in the present form or one of the older ones. */
function claimOf(body: JsonObject): Claim {
  const identifier = isJsonObject(body['identifier']) ? body['identifier'] : olderIdentifier(body);
  const field = (name: string): string => {
    const value = identifier[name];
    if (value === undefined) throw MatrixError.missingParam(`Missing 'identifier.${name}'`);
    if (typeof value !== 'string') throw MatrixError.badJson(`'identifier.${name}' must be a string`);
    return value;
  };
  switch (identifier['type']) {
    case 'm.id.user':
      return { kind: 'user', name: field('user') };
    case 'm.id.thirdparty': {
      const medium = field('medium');
      return { kind: 'threepid', medium, address: canonicalAddress(medium, field('address')) };
    }
    case 'm.id.phone':
      return {
        kind: 'threepid',
        medium: 'msisdn',
        address: canonicalPhone(
          field('country'),
          typeof identifier['number'] === 'string' ? identifier['number'] : field('phone'),
        ),
      };
    default:
      throw MatrixError.badRequest('Unknown kind of identifier');
  }
}

function olderIdentifier(body: JsonObject): JsonObject {
  // Null is absent: a typed client writes all the forms that it knows.
  const { user, medium, address } = body;
  if ((user ?? undefined) !== undefined) return { type: 'm.id.user', user };
  if ((medium ?? address ?? undefined) !== undefined) return { type: 'm.id.thirdparty', medium, address };
  throw MatrixError.missingParam("Missing parameter 'identifier'");
}
