import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database, failureLevel } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, KeyedMutex, KeyedRetries, Logger } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { type DeactivatedEvent, UserHooks } from '../hooks.js';
import { ProfileService } from '../profiles/profile.service.js';
import { SessionService } from '../sessions/session.service.js';
import { deletePuppetTokens } from '../sessions/token.query.js';
import { deleteOpenIdTokens } from '../openid/openid.query.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { deleteThreepid, threepidsOf } from '../threepids/threepid.query.js';
import { deleteAccountDataOf } from '../account-data/account-data.query.js';
import {
  findAccount,
  isErased,
  pendingDeactivations,
  setDeactivationPending,
  setAccountFlags,
  setErased,
  setPasswordHash,
} from '../store/account.query.js';

/** How long an answer waits for rooms to be left, and for identity servers. */
const answerWithinMs = 5_000;
/** How long after a failure what follows upon the end of an account is taken up once more, milliseconds. */
const pauses = { firstMs: 10_000, longestMs: 3_600_000 };
/** The key under which looking for what is left undone is tried again: no user's. */
const all = '';

/** Closes accounts and opens them again. */
@Injectable()
export class DeactivationService implements OnApplicationBootstrap, OnModuleDestroy {
  /** What follows upon the ends of a user's account, one after the other. */
  readonly #following = new KeyedMutex();
  /** The latest end of an account for which something follows; aborts where the account is opened again. */
  readonly #ends = new Map<string, { readonly event: DeactivatedEvent; readonly reopened: AbortController }>();
  readonly #retries: KeyedRetries;

  // Eight parameters: sessions, profile, addresses, hooks and modules are each told of an end.
  constructor(
    private readonly database: Database,
    private readonly sessions: SessionService,
    private readonly profiles: ProfileService,
    private readonly published: ThreepidService,
    private readonly hooks: UserHooks,
    private readonly modules: AccountModules,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#retries = new KeyedRetries(clock, pauses);
  }

  onModuleDestroy(): void {
    this.#retries.stop();
  }

  /**
   * Closes an account for good: password, tokens, devices, addresses and account data go in one transaction; leaving the
   * rooms follows by hook. The name stays taken.
   * @returns whether no identity server is left that knows an address of theirs
   * @param erase forget the user's profile, and hide their messages from those who join later
   * @param idServer an identity server that is to forget the addresses, beside those that were told through this server
   * @throws MatrixError 403 `M_FORBIDDEN` (a module objects), 404 `M_NOT_FOUND`
   */
  async deactivate(
    userId: string,
    erase: boolean,
    byAdmin: boolean,
    origin: Origin,
    idServer?: string,
  ): Promise<boolean> {
    if (!(await findAccount(this.database, userId))) throw MatrixError.noSuchUser();
    await this.checkAllowed(userId, byAdmin, origin);
    return this.close(userId, erase, byAdmin, origin, idServer);
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`: a module objects to {@link deactivate} */
  async checkAllowed(userId: string, byAdmin: boolean, origin: Origin): Promise<void> {
    await this.modules.checkDeactivation(userId, byAdmin, origin);
  }

  /** As {@link deactivate}, after {@link checkAllowed}. @throws MatrixError 404 `M_NOT_FOUND` */
  async close(userId: string, erase: boolean, byAdmin: boolean, origin: Origin, idServer?: string): Promise<boolean> {
    const account = await findAccount(this.database, userId);
    if (!account) throw MatrixError.noSuchUser();
    const event = { userId, erase, byAdmin };
    let reopened: AbortSignal | undefined;
    await this.hooks.deactivated.prepare(event);
    await this.sessions.tellModules(userId, { origin });
    const { closed, threepids } = await this.database.write(
      async (tx) => {
        await setAccountFlags(tx, userId, { deactivated: true, locked: false });
        await setPasswordHash(tx, userId, null);
        if (erase) await setErased(tx, userId, true);
        await deleteOpenIdTokens(tx, userId);
        const threepids = await threepidsOf(tx, userId);
        for (const { medium, address } of threepids) {
          await deleteThreepid(tx, userId, medium, address);
          await this.hooks.threepidRemoved.inTransaction(tx, { userId, medium, address, atRegistration: false });
        }
        await deleteAccountDataOf(tx, userId);
        await setDeactivationPending(tx, userId, true);
        tx.afterCommit(() => (reopened = this.#note(event)));
        await this.hooks.deactivated.inTransaction(tx, event);
        // Sessions in which administrators act as the user.
        await deletePuppetTokens(tx, userId);
        // Last: it takes positions, for which others may wait.
        const closed = await this.sessions.closeAllInTransaction(tx, userId);
        return { closed, threepids };
      },
      { name: 'deactivate' },
    );
    await this.sessions.afterClosed(userId, closed);
    for (const { medium, address } of threepids) {
      await this.hooks.threepidRemoved.afterCommit({ userId, medium, address, atRegistration: false });
      await this.modules.threepidRemoved(userId, medium, address, origin);
    }
    const at = idServer === undefined ? undefined : { idServer, addresses: threepids };
    const [unbound] = await Promise.all([
      this.#unpublishSoon(userId, at),
      this.#inTime(this.#finish(event, origin, reopened)),
    ]);
    if (!account.deactivated) await this.modules.deactivationChanged(userId, true, byAdmin, origin);
    return unbound;
  }

  /** Opens an account again; it needs a new password or a single sign-on login. @throws MatrixError 404 `M_NOT_FOUND` */
  async reactivate(userId: string, origin: Origin): Promise<void> {
    const account = await findAccount(this.database, userId);
    if (!account) throw MatrixError.noSuchUser();
    await this.database.write(
      async (tx) => {
        tx.unlessRolledBack(() => this.sessions.invalidate(userId));
        await setAccountFlags(tx, userId, { deactivated: false });
        await setErased(tx, userId, false);
        await setDeactivationPending(tx, userId, false);
        tx.unlessRolledBack(() => this.#ceaseFollowing(userId));
        await this.hooks.reactivated.inTransaction(tx, { userId });
      },
      { name: 'reactivate' },
    );
    await this.hooks.reactivated.afterCommit({ userId });
    if (account.deactivated) await this.modules.deactivationChanged(userId, false, true, origin);
  }

  /** What a crash or a failure has left undone is taken up again when the server starts: the profile of who is erased, leaving the rooms. */
  onApplicationBootstrap(): void {
    if (this.database.isBesideWriter) return;
    this.resume().then(
      () => this.#retries.forget(all),
      (error: unknown) => {
        this.logger[failureLevel(error)]('Could not go on with deactivations', { err: error });
        this.#retries.later(all, () => this.onApplicationBootstrap());
      },
    );
  }

  /** Goes on with deactivations that are not complete. */
  async resume(): Promise<void> {
    for (const userId of await pendingDeactivations(this.database)) {
      const event = { userId, erase: await isErased(this.database, userId), byAdmin: false };
      await this.#finish(event, {}, this.#note(event));
    }
  }

  /** Identity servers may be slow: who is not done in time may be so later. */
  async #unpublishSoon(...which: Parameters<ThreepidService['unpublishAll']>): Promise<boolean> {
    let done = false;
    const [userId] = which;
    const asking = this.published.unpublishAll(...which).then(
      (unbound) => void (done = unbound),
      (error: unknown) => this.logger.error('Could not take addresses back', { userId, err: error }),
    );
    await this.#inTime(asking);
    return done;
  }

  /**
   * Somebody in thousands of rooms need not wait until all are left: that goes on behind the answer.
   * @param work never rejects
   */
  #inTime(work: Promise<void>): Promise<void> {
    return new Promise<void>((resolve) => {
      const timer = this.clock.after(answerWithinMs, resolve);
      void work.then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  /**
   * What follows upon the end of an account, until it is opened again; where something of it fails it is done once more, after a pause.
   * Never rejects: one user's trouble is not another's.
   */
  async #finish(event: DeactivatedEvent, origin: Origin, reopened?: AbortSignal): Promise<void> {
    const { userId } = event;
    const isOver = await this.#following.run(userId, async () => {
      try {
        if (reopened?.aborted !== false || (await findAccount(this.database, userId))?.deactivated !== true)
          return true;
        return await this.#follow(event, origin, reopened);
      } catch (error) {
        this.logger[failureLevel(error)]('Could not finish a deactivation', { userId, err: error });
        return false;
      }
    });
    // Otherwise another end came meanwhile, with which all is done that this one has left, or the account is open.
    if (this.#ends.get(userId)?.event !== event) return;
    if (!isOver) return this.#retries.later(userId, () => void this.#finish(event, origin, reopened));
    this.#ends.delete(userId);
    this.#retries.forget(userId);
  }

  /** @returns whether all of it is done */
  async #follow(event: DeactivatedEvent, origin: Origin, reopened: AbortSignal): Promise<boolean> {
    const { userId } = event;
    const isForgotten = !event.erase || (await this.#clearProfile(event, origin));
    if (!(await this.hooks.deactivated.afterCommit({ ...event, reopened })) || !isForgotten) return false;
    // Otherwise the mark is that of another end, which is not complete.
    const isOurs = (): boolean => !reopened.aborted && this.#ends.get(userId)?.event === event;
    await this.database.write(async (tx) => isOurs() && setDeactivationPending(tx, userId, false), {
      name: 'deactivated',
    });
    return true;
  }

  /** @returns aborts when the account is opened again */
  #note(event: DeactivatedEvent): AbortSignal {
    const reopened = this.#ends.get(event.userId)?.reopened ?? new AbortController();
    this.#ends.set(event.userId, { event, reopened });
    return reopened.signal;
  }

  #ceaseFollowing(userId: string): void {
    this.#ends.get(userId)?.reopened.abort();
    this.#ends.delete(userId);
    this.#retries.forget(userId);
  }

  /** @returns whether that was possible: rooms are left all the same */
  async #clearProfile({ userId, byAdmin }: DeactivatedEvent, origin: Origin): Promise<boolean> {
    try {
      const profile = (await this.profiles.get(userId)) ?? {};
      const cleared = Object.fromEntries(Object.keys(profile).map((field) => [field, undefined]));
      await this.profiles.update(userId, cleared, { origin, byAdmin, deactivation: true });
      return true;
    } catch (error) {
      this.logger.error('Could not clear the profile of a closed account', { userId, err: error });
      return false;
    }
  }
}
