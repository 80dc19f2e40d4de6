import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { type ThreepidEvent, UserHooks } from '../hooks.js';
import { holdAccount, isClosedForUpdate } from '../store/account-hold.query.js';
import { canonicalAddress } from './addresses.js';
import { IdentityServer } from './identity-server.js';
import { checkAllowedThreepid } from './threepid-rules.js';
import {
  type Binding,
  bindingsOf,
  deleteBinding,
  deleteThreepid,
  holdersOf,
  recordBinding,
  insertThreepid,
  maxBindings,
  type Threepid,
  threepidsOf,
  userOfThreepid,
} from './threepid.query.js';

/** Addresses that belong to accounts. */
@Injectable()
export class ThreepidService {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly hooks: UserHooks,
    private readonly modules: AccountModules,
    private readonly identity: IdentityServer,
  ) {}

  /** Oldest first. */
  list(userId: string): Promise<Threepid[]> {
    return threepidsOf(this.database, userId);
  }

  /** The user that an address belongs to. @throws MatrixError 400 for what is no address */
  userOf(medium: string, address: string): Promise<string | undefined> {
    return userOfThreepid(this.database, medium, canonicalAddress(medium, address));
  }

  /**
   * Adds an address that was proved, or that an administrator vouches for: what is kept from users (`allowed_local_3pids`, modules) is not
   * from these.
   * @param use uses the proof up in the same transaction; whether it was still there
   * @throws MatrixError 400 `M_THREEPID_IN_USE`, `M_THREEPID_AUTH_FAILED`, `M_INVALID_PARAM`; 403 `M_THREEPID_DENIED`, `M_USER_DEACTIVATED`
   */
  async add(
    userId: string,
    medium: string,
    address: string,
    validatedMs: number,
    origin: Origin,
    use?: (tx: Tx) => Promise<boolean>,
  ): Promise<void> {
    const canonical = canonicalAddress(medium, address);
    if (origin.byAdmin !== true) {
      checkAllowedThreepid(this.config, medium, canonical);
      await this.modules.checkThreepid(medium, canonical, false, origin);
    }
    const event = { userId, medium, address: canonical, atRegistration: false };
    await this.database.write(
      async (tx) => {
        // Administrators may prepare an account that they open again.
        if (use) await holdAccount(tx, userId);
        if (use && !(await use(tx))) throw MatrixError.threepidAuthFailed('The proof has been used');
        if (
          !(await insertThreepid(tx, { userId, medium, address: canonical, validatedMs, addedMs: this.clock.nowMs() }))
        ) {
          throw MatrixError.threepidInUse();
        }
        await this.hooks.threepidAdded.inTransaction(tx, event);
      },
      { name: 'threepid_add' },
    );
    await this.hooks.threepidAdded.afterCommit(event);
    await this.modules.threepidAdded(userId, medium, canonical, origin);
  }

  /**
   * Notes that the client had an identity server told of an address. Of an account that was closed meanwhile, which has taken back what was
   * known then, it is taken back at once.
   * @throws MatrixError 403 `M_USER_DEACTIVATED`
   */
  async published(userId: string, medium: string, address: string, idServer: string): Promise<void> {
    const isClosed = await this.database.write(
      async (tx) => {
        await recordBinding(tx, userId, medium, address, idServer);
        return isClosedForUpdate(tx, userId);
      },
      { name: 'threepid_binding' },
    );
    if (!isClosed) return;
    if (this.config.get('enable_3pid_lookup'))
      await this.#unbind(userId, { medium, address, idServer }).catch((error: unknown) => {
        // What could not be taken back is still known, for whoever closes the account once more.
        if (!MatrixError.is(error)) throw error;
      });
    throw MatrixError.userDeactivated();
  }

  /**
   * Has identity servers forget an address.
   * @param idServer the one to be asked; else those that were told through this server
   * @returns whether all of them did; `false` where none is known or one does not support it
   * @throws MatrixError 400 `M_INVALID_PARAM`; 502; what an identity server refuses with
   */
  async unpublish(userId: string, medium: string, address: string, idServer?: string): Promise<boolean> {
    const canonical = canonicalAddress(medium, address);
    if (!this.config.get('enable_3pid_lookup')) return false;
    const bindings =
      idServer === undefined
        ? await bindingsOf(this.database, userId, { medium, address: canonical })
        : [{ medium, address: canonical, idServer }];
    let all = bindings.length > 0;
    for (const binding of bindings) all = (await this.#unbind(userId, binding)) && all;
    return all;
  }

  /**
   * Has identity servers forget all addresses of a user, as far as they can be reached and let it happen.
   * @param at an identity server that is asked to forget these addresses, too: the client may have told it itself
   * @returns whether there is none left that was told through this server, or that `at` knows
   */
  async unpublishAll(
    userId: string,
    at?: { readonly idServer: string; readonly addresses: readonly Pick<Binding, 'medium' | 'address'>[] },
  ): Promise<boolean> {
    const told = await bindingsOf(this.database, userId);
    const asked = (at?.addresses ?? []).map(({ medium, address }) => ({ medium, address, idServer: at!.idServer }));
    const bindings = [...new Map([...told, ...asked].map((one) => [JSON.stringify(one), one])).values()];
    if (bindings.length === 0) return true;
    if (!this.config.get('enable_3pid_lookup')) return false;
    const done = await Promise.all(
      bindings.map((binding) =>
        this.#unbind(userId, binding).catch((error: unknown) => {
          if (!MatrixError.is(error)) throw error;
          return false;
        }),
      ),
    );
    return done.every(Boolean) && told.length < maxBindings;
  }

  /**
   * Gives an account just these addresses of one kind, in one transaction, as whoever has the last word about them says: what is another
   * account's is taken from that one.
   * @throws MatrixError 400 `M_INVALID_PARAM`, and `M_THREEPID_IN_USE` where another got one of them at the same moment
   */
  async replace(
    userId: string,
    medium: string,
    addresses: readonly string[],
    validatedMs: number,
    origin: Origin,
  ): Promise<void> {
    const wanted = new Set(addresses.map((address) => canonicalAddress(medium, address)));
    const { added, removed } = await this.database.write(
      async (tx) => {
        const before = (await threepidsOf(tx, userId)).flatMap((one) => (one.medium === medium ? [one.address] : []));
        const added = [...wanted].filter((address) => !before.includes(address));
        const removed = [
          ...(await this.release(tx, medium, added)),
          ...before
            .filter((address) => !wanted.has(address))
            .map((address) => ({ userId, medium, address, atRegistration: false })),
        ];
        for (const event of removed.filter((one) => one.userId === userId)) await this.#remove(tx, event);
        for (const address of added) {
          const threepid = { userId, medium, address, validatedMs, addedMs: this.clock.nowMs() };
          // Somebody else got it just now.
          if (!(await insertThreepid(tx, threepid))) throw MatrixError.threepidInUse();
          await this.hooks.threepidAdded.inTransaction(tx, { userId, medium, address, atRegistration: false });
        }
        return { added, removed };
      },
      { name: 'threepid_replace' },
    );
    await this.released(removed, origin);
    for (const address of added) {
      await this.hooks.threepidAdded.afterCommit({ userId, medium, address, atRegistration: false });
      await this.modules.threepidAdded(userId, medium, address, origin);
    }
  }

  /**
   * Takes addresses from whichever accounts have them, in the transaction that gives them to another.
   * @param addresses in their canonical form
   * @returns what is to be told by {@link released} once that is durable
   */
  async release(tx: Tx, medium: string, addresses: readonly string[]): Promise<ThreepidEvent[]> {
    const events = (await holdersOf(tx, medium, addresses)).map((one) => ({ ...one, medium, atRegistration: false }));
    for (const event of events) await this.#remove(tx, event);
    return events;
  }

  /** Tells of addresses that accounts have lost. */
  async released(events: readonly ThreepidEvent[], origin: Origin): Promise<void> {
    for (const event of events) {
      await this.hooks.threepidRemoved.afterCommit(event);
      await this.modules.threepidRemoved(event.userId, event.medium, event.address, origin);
    }
  }

  /** Takes an address away. @returns whether the user had it */
  async remove(userId: string, medium: string, address: string, origin: Origin): Promise<boolean> {
    const canonical = canonicalAddress(medium, address);
    const event = { userId, medium, address: canonical, atRegistration: false };
    const removed = await this.database.write((tx) => this.#remove(tx, event), { name: 'threepid_remove' });
    if (removed) await this.released([event], origin);
    return removed;
  }

  /** @returns whether the user had it */
  async #remove(tx: Tx, event: ThreepidEvent): Promise<boolean> {
    if (!(await deleteThreepid(tx, event.userId, event.medium, event.address))) return false;
    await this.hooks.threepidRemoved.inTransaction(tx, event);
    return true;
  }

  async #unbind(userId: string, binding: Binding): Promise<boolean> {
    if (!(await this.identity.unbind(binding.idServer, userId, binding.medium, binding.address))) return false;
    await this.database.write((tx) => deleteBinding(tx, userId, binding), { name: 'threepid_unbinding' });
    return true;
  }
}
