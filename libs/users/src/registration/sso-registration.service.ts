import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type RequestOrigin } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { assertServerOpen } from '../common/server-gate.js';
import { canonicalAddress } from '../threepids/addresses.js';
import { checkAllowedThreepid } from '../threepids/threepid-rules.js';
import { ThreepidService } from '../threepids/threepid.service.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import { AccountService } from '../accounts/account.service.js';

/** Somebody who signed on for the first time. */
export interface SsoNewcomer {
  readonly localpart: string;
  readonly displayName?: string | undefined;
  /** Addresses that the provider vouches for; those that are not allowed here or belong to others are left out. */
  readonly emails: readonly string[];
  readonly consentVersion?: string | undefined;
  readonly authProvider: string;
  /** What the provider calls the user. */
  readonly externalId: string;
  readonly request: RequestOrigin;
}

/** Registrations by single sign-on. */
@Injectable()
export class SsoRegistration {
  constructor(
    private readonly accounts: AccountService,
    private readonly threepids: ThreepidService,
    private readonly modules: AccountModules,
    private readonly participation: ParticipationGate,
    private readonly limiter: RateLimiter,
    private readonly clock: Clock,
    private readonly config: Config,
  ) {}

  /** @throws MatrixError as {@link AccountService.checkAvailable} */
  async checkName(localpart: string): Promise<void> {
    await this.accounts.checkAvailable(localpart);
  }

  /**
   * Makes the account and ties it to the provider's user, in one transaction.
   * @returns the full user id
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`; 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`; 409 `M_UNKNOWN` when the
   *   provider's user has an account already; 429
   */
  async register(newcomer: SsoNewcomer): Promise<string> {
    const { displayName, consentVersion, authProvider, externalId, request } = newcomer;
    const localpart = await this.accounts.checkAvailable(newcomer.localpart);
    const origin = { request };
    assertServerOpen(this.config);
    await this.limiter.take('rc_registration', request.ip);
    const threepids = await this.#threepids(newcomer);
    await this.participation.assertRoomFor({ threepids });
    const shadowBanned = await this.modules.checkRegistration(
      {
        email: undefined,
        username: localpart,
        authProviderId: authProvider,
      },
      origin,
    );
    return this.accounts.register({
      ...{ localpart, displayName, consentVersion, threepids, shadowBanned, origin },
      externalId: { authProvider, externalId },
    });
  }

  async #threepids({ emails, request }: SsoNewcomer) {
    const validatedMs = this.clock.nowMs();
    const accepted = new Map<string, { medium: string; address: string; validatedMs: number }>();
    for (const email of emails) {
      try {
        const address = canonicalAddress('email', email);
        checkAllowedThreepid(this.config, 'email', address);
        await this.modules.checkThreepid('email', address, true, { request });
        if ((await this.threepids.userOf('email', address)) !== undefined) continue;
        accepted.set(address, { medium: 'email', address, validatedMs });
      } catch (error) {
        // An address that cannot be had is no reason to keep somebody out.
        if (!MatrixError.is(error) || error.status >= 500) throw error;
      }
    }
    return [...accepted.values()];
  }
}
