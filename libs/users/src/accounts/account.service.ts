import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { localpartOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { checkNewLocalpart, checkServiceLocalpart, qualifyUserId } from '../common/user-names.js';
import { UserHooks } from '../hooks.js';
import { insertProfile } from '../profiles/profile.query.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { allBut, SessionService } from '../sessions/session.service.js';
import { deletePuppeteerTokens } from '../sessions/token.query.js';
import { insertThreepid } from '../threepids/threepid.query.js';
import {
  type Account,
  type AccountFlags,
  findAccount,
  findAccountsIgnoringCase,
  insertAccount,
  setAccountFlags,
  setPasswordHash,
  somePeople,
  upgradeGuest,
  upgradePasswordHash,
} from '../store/account.query.js';
import { AccountValidity } from './account-validity.js';
import { needsApproval } from './approval.js';
import { PasswordService } from './password.service.js';
import { recordExternalId } from '../store/external-id.query.js';
import { forgetRegistration } from '../store/registration-outcome.query.js';
import { completeUse } from '../store/registration-token.query.js';

/** A new account, after everything about it was checked. */
export interface Registration {
  /** A number is given when absent. */
  readonly localpart?: string | undefined;
  readonly passwordHash?: string | undefined;
  readonly isAdmin?: boolean | undefined;
  readonly isGuest?: boolean | undefined;
  readonly appserviceId?: string | undefined;
  readonly userType?: string | undefined;
  readonly shadowBanned?: boolean | undefined;
  /** Default: not where accounts wait for an administrator, unless one makes it, or an application service. */
  readonly approved?: boolean | undefined;
  readonly locked?: boolean | undefined;
  /** Version of the policy that the user agreed to. */
  readonly consentVersion?: string | undefined;
  /** Default: the localpart. */
  readonly displayName?: string | undefined;
  readonly avatarUrl?: string | undefined;
  /** Addresses that were proved, or that an administrator vouches for. */
  readonly threepids?:
    readonly { readonly medium: string; readonly address: string; readonly validatedMs: number }[] | undefined;
  /** A registration token whose pending use this completes. */
  readonly registrationToken?: string | undefined;
  /** A guest whom this makes an ordinary user: the account stays, and `localpart` is its own. */
  readonly upgradedGuest?: string | undefined;
  /** Written together with the account; what it throws undoes all. */
  readonly inTransaction?: ((tx: Tx, userId: string) => Promise<void>) | undefined;
  /** What the user is called at the single sign-on provider by which the account comes to be. */
  readonly externalId?: { readonly authProvider: string; readonly externalId: string } | undefined;
  readonly origin: Origin;
}

/** Accounts: making, finding and changing them. */
@Injectable()
export class AccountService {
  // Ten parameters: a new account is told to sessions, validity, hooks and modules in one transaction.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly passwords: PasswordService,
    private readonly sessions: SessionService,
    private readonly appservices: AppserviceDirectory,
    private readonly validity: AccountValidity,
    private readonly hooks: UserHooks,
    private readonly modules: AccountModules,
  ) {}

  /** The account with this full id. */
  find(userId: string): Promise<Account | undefined> {
    return findAccount(this.database, userId);
  }

  /**
   * The account that somebody means who types a name: exactly this one, else the only one that differs in case alone.
   * @param name a localpart or a full user id
   */
  async findByName(name: string): Promise<Account | undefined> {
    if (name.includes('\0')) return undefined;
    const userId = qualifyUserId(name, this.config.serverName);
    const found = await findAccountsIgnoringCase(this.database, userId);
    if (found[0]?.userId === userId || found.length === 1) return found[0];
    return undefined;
  }

  /**
   * The localpart of a new account, if it may be taken.
   * @param options `exact`: the account is to have this very name, and none in lower case instead
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`
   */
  async checkAvailable(
    username: string,
    options: { readonly tellInUse?: boolean; readonly exact?: boolean } = {},
  ): Promise<string> {
    const rules = {
      serverName: this.config.serverName,
      allowUnderscorePrefix: this.config.get('allow_underscore_prefixed_localpart'),
    };
    const localpart = checkNewLocalpart(username, rules);
    if (options.exact && localpart !== username)
      throw MatrixError.invalidUsername('A user name has no upper-case letters');
    const userId = this.#unclaimed(localpart, undefined);
    if (options.tellInUse !== false && (await findAccountsIgnoringCase(this.database, userId)).length > 0)
      throw userInUse();
    return localpart;
  }

  /**
   * Checks that an application service may make an account with just this name. Users whose names differ in case alone are two.
   * @throws MatrixError as {@link checkAvailable}
   */
  async checkAvailableTo(appserviceId: string, localpart: string): Promise<void> {
    checkServiceLocalpart(localpart, this.config.serverName);
    if (await findAccount(this.database, this.#unclaimed(localpart, appserviceId))) throw userInUse();
  }

  /** The user id that a localpart makes, unless it is kept for somebody else. */
  #unclaimed(localpart: string, appserviceId: string | undefined): string {
    if (localpart === this.config.get('server_notices.system_mxid_localpart')) throw userInUse();
    const userId = qualifyUserId(localpart, this.config.serverName);
    const owner = this.appservices.exclusiveOwner(userId);
    if (owner && owner.id !== appserviceId) throw MatrixError.exclusive();
    return userId;
  }

  /**
   * Makes an account with its profile, addresses and validity, in one transaction.
   * @returns the full user id
   * @throws MatrixError 400 `M_USER_IN_USE`, `M_THREEPID_IN_USE`; 409 `M_UNKNOWN` (the external id is another account's)
   */
  async register(registration: Registration): Promise<string> {
    const localpart = registration.localpart ?? this.#numberedLocalpart();
    const userId = qualifyUserId(localpart, this.config.serverName);
    const nowMs = this.clock.nowMs();
    const { isGuest = false, threepids = [], externalId } = registration;
    const displayName = registration.displayName ?? localpartOf(userId);
    const expiryMs = isGuest ? undefined : this.validity.initialExpiryMs();
    const userType = registration.userType ?? this.config.get('user_types.default_user_type');
    const event = {
      userId,
      isGuest,
      appserviceId: registration.appserviceId,
      userType,
      byAdmin: registration.origin.byAdmin ?? false,
      shadowBanned: registration.shadowBanned ?? false,
      authProvider: externalId?.authProvider,
    };
    await this.hooks.registered.prepare(event);
    await this.database.write(
      async (tx) => {
        await registration.inTransaction?.(tx, userId);
        const approved = registration.approved ?? this.#isApproved(registration);
        const account = { ...registration, userId, userType, approved, createdMs: nowMs };
        if (registration.upgradedGuest === userId) {
          tx.unlessRolledBack(() => this.sessions.invalidate(userId));
          if (!(await upgradeGuest(tx, account))) throw userInUse();
        } else if (
          (registration.appserviceId === undefined && (await findAccountsIgnoringCase(tx, userId)).length > 0) ||
          !(await insertAccount(tx, account))
        )
          throw userInUse();
        if (externalId && !(await recordExternalId(tx, externalId.authProvider, externalId.externalId, userId)))
          throw externalIdInUse();
        if (registration.upgradedGuest === undefined)
          await insertProfile(tx, userId, displayName, registration.avatarUrl);
        if (expiryMs !== undefined) await this.validity.set(tx, userId, expiryMs, false);
        for (const { medium, address, validatedMs } of threepids) {
          if (!(await insertThreepid(tx, { userId, medium, address, validatedMs, addedMs: nowMs })))
            throw MatrixError.threepidInUse();
          await this.hooks.threepidAdded.inTransaction(tx, { userId, medium, address, atRegistration: true });
        }
        if (registration.registrationToken !== undefined) await completeUse(tx, registration.registrationToken);
        await this.hooks.registered.inTransaction(tx, event);
      },
      { name: 'register' },
    );
    for (const { medium, address } of threepids) {
      await this.hooks.threepidAdded.afterCommit({ userId, medium, address, atRegistration: true });
      await this.modules.threepidAdded(userId, medium, address, registration.origin);
    }
    await this.hooks.registered.afterCommit(event);
    await this.modules.registered(userId, registration.origin);
    return userId;
  }

  /**
   * Compares a password with that of an account. Takes the same time whether the account exists or not, and improves the
   * stored hash where that is possible.
   * @returns the stored hash, where the password matches: it tells later whether the password is still the same
   */
  async matchingHash(account: Account | undefined, password: string): Promise<string | undefined> {
    const usable = account && !account.deactivated ? account.passwordHash : undefined;
    const { matches, upgradedHash } = await this.passwords.verify(password, usable);
    if (!matches || !account || usable === undefined) return undefined;
    if (upgradedHash === undefined) return usable;
    const { userId } = account;
    const isUpgraded = await this.database.write((tx) => upgradePasswordHash(tx, userId, usable, upgradedHash), {
      name: 'password_upgrade',
    });
    // Otherwise another login has improved the hash meanwhile, or the password is another by now.
    return isUpgraded ? upgradedHash : this.matchingHash(await this.find(userId), password);
  }

  /**
   * Sets a password; `null` takes it away. The password was checked.
   * @param logout end all sessions but that of `exceptDeviceId`
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async setPassword(userId: string, password: string | null, logout: boolean, exceptDeviceId?: string): Promise<void> {
    const hash = password === null ? null : await this.passwords.hash(password);
    if (logout) await this.sessions.tellModules(userId, {}, allBut(exceptDeviceId));
    const closed = await this.database.write(
      async (tx) => {
        if (!(await setPasswordHash(tx, userId, hash))) throw MatrixError.noSuchUser();
        await forgetRegistration(tx, userId);
        return logout ? this.sessions.closeAllInTransaction(tx, userId, exceptDeviceId) : undefined;
      },
      { name: 'set_password' },
    );
    if (closed) await this.sessions.afterClosed(userId, closed);
  }

  /**
   * Turns an account's switches. They hold from the next request on. Who is no administrator anymore, or locked out, does
   * not go on acting as others either.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async setFlags(userId: string, flags: AccountFlags): Promise<void> {
    const isKnown = await this.database.write(
      async (tx) => {
        tx.unlessRolledBack(() => this.sessions.invalidate(userId));
        // The account first: who is just getting such a token holds it.
        const isChanged = await setAccountFlags(tx, userId, flags);
        if (flags.isAdmin === false || flags.locked === true) await deletePuppeteerTokens(tx, userId);
        return isChanged;
      },
      { name: 'account_flags' },
    );
    if (!isKnown) throw MatrixError.noSuchUser();
  }

  /** Whether nobody but this user has an account: guests, bots, support and application services do not count. */
  async isOnlyPerson(userId: string): Promise<boolean> {
    const [first, second] = await somePeople(this.database, 2);
    return first === userId && second === undefined;
  }

  #isApproved({ isGuest, appserviceId, origin }: Registration): boolean {
    return isGuest || appserviceId !== undefined || origin.byAdmin || !needsApproval(this.config);
  }

  /** Numbers are drawn, not counted: they tell nothing about how many there are. */
  #numberedLocalpart(): string {
    return String(this.ids.integer(9e13) + 1e13);
  }
}

/** 409 `M_UNKNOWN`: somebody who signed on has an account already, perhaps since a moment ago. */
const externalIdInUse = (): MatrixError => MatrixError.externalIdInUse();

const userInUse = (): MatrixError => MatrixError.userInUse();
