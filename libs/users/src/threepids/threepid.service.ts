import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { UserHooks } from '../hooks.js';
import { canonicalAddress } from './addresses.js';
import { checkAllowedThreepid } from './threepid-rules.js';
import {
  deleteThreepid,
  hasBindings,
  recordBinding,
  insertThreepid,
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
  ) {}

  /** Oldest first. */
  list(userId: string): Promise<Threepid[]> {
    return threepidsOf(this.database, userId);
  }

  /** The user that an address belongs to. @throws MatrixError 400 for what is no address */
  userOf(medium: string, address: string): Promise<string | undefined> {
    return userOfThreepid(this.database, medium, canonicalAddress(medium, address));
  }

  /** Whether identity servers were told of any of a user's addresses, or of this one. Only the client can take that back. */
  async isPublished(userId: string, medium?: string, address?: string): Promise<boolean> {
    return hasBindings(
      this.database,
      userId,
      medium,
      medium === undefined || address === undefined ? undefined : canonicalAddress(medium, address),
    );
  }

  /**
   * Adds an address that was proved, or that an administrator vouches for.
   * @param use uses the proof up in the same transaction; whether it was still there
   * @throws MatrixError 400 `M_THREEPID_IN_USE`, `M_THREEPID_AUTH_FAILED`, `M_INVALID_PARAM`; 403 `M_THREEPID_DENIED`
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
    checkAllowedThreepid(this.config, medium, canonical);
    await this.modules.checkThreepid(medium, canonical, false, origin);
    const event = { userId, medium, address: canonical, atRegistration: false };
    await this.database.write(
      async (tx) => {
        if (use && !(await use(tx))) throw new MatrixError(400, 'M_THREEPID_AUTH_FAILED', 'The proof has been used');
        if (
          !(await insertThreepid(tx, { userId, medium, address: canonical, validatedMs, addedMs: this.clock.nowMs() }))
        ) {
          throw new MatrixError(400, 'M_THREEPID_IN_USE', 'This address belongs to another account');
        }
        await this.hooks.threepidAdded.inTransaction(tx, event);
      },
      { name: 'threepid_add' },
    );
    await this.hooks.threepidAdded.afterCommit(event);
    await this.modules.threepidAdded(userId, medium, canonical, origin);
  }

  /** Notes that the client had an identity server told of an address. */
  async published(userId: string, medium: string, address: string, idServer: string): Promise<void> {
    await this.database.write((tx) => recordBinding(tx, userId, medium, address, idServer), {
      name: 'threepid_binding',
    });
  }

  /** Takes an address away. @returns whether the user had it */
  async remove(userId: string, medium: string, address: string, origin: Origin): Promise<boolean> {
    const canonical = canonicalAddress(medium, address);
    const event = { userId, medium, address: canonical, atRegistration: false };
    const removed = await this.database.write(
      async (tx) => {
        if (!(await deleteThreepid(tx, userId, medium, canonical))) return false;
        await this.hooks.threepidRemoved.inTransaction(tx, event);
        return true;
      },
      { name: 'threepid_remove' },
    );
    if (!removed) return false;
    await this.hooks.threepidRemoved.afterCommit(event);
    await this.modules.threepidRemoved(userId, medium, canonical, origin);
    return true;
  }
}
