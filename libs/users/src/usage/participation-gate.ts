import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { resourceLimit } from '../common/server-gate.js';
import { ConsentService } from '../consent/consent.service.js';
import { MonthlyActiveUsers } from './monthly-active-users.service.js';

/** What a new account brings that may get it in where no place is left. */
export interface Newcomer {
  readonly threepids?: readonly { readonly medium: string; readonly address: string }[] | undefined;
}

/**
 * Who may take part: within the limit of monthly active users, and once they agreed to the policy. Where neither is
 * configured each question costs a look at the settings.
 */
@Injectable()
export class ParticipationGate {
  constructor(
    private readonly users: MonthlyActiveUsers,
    private readonly consent: ConsentService,
    private readonly config: Config,
  ) {}

  /** Whether anybody could be refused, by the settings: events need not be asked about else. */
  get restricts(): boolean {
    return this.users.limited || this.config.get('user_consent.block_events_error') !== undefined;
  }

  /**
   * Whether somebody may be active at all: log in, sync, send.
   * @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED` with `limit_type` and `admin_contact`
   */
  async assertActive(requester: Pick<Requester, 'userId' | 'puppetedBy' | 'appserviceId'>): Promise<void> {
    if (!this.users.limited || this.#isExempt(requester)) return;
    if (!(await this.users.admit(requester.puppetedBy ?? requester.userId))) throw this.limitReached();
  }

  /**
   * Whether somebody may make events.
   * @param isNoticeRoom whether it is the room of the server's notices, which says how to agree
   * @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN` with `consent_uri`
   */
  async assertMaySend(requester: Requester, isNoticeRoom?: () => Promise<boolean>): Promise<void> {
    await this.assertActive(requester);
    const message = this.config.get('user_consent.block_events_error');
    if (message === undefined || this.#isSystemUser(requester.userId) || requester.appserviceId !== undefined) return;
    if (!(await this.consent.isMissing(requester.userId)) || (await isNoticeRoom?.())) return;
    const uri = this.consent.uriFor(requester.userId);
    throw MatrixError.consentNotGiven(message.replaceAll('%(consent_uri)s', uri), {
      consent_uri: uri,
    });
  }

  /** Whether one more account may be made. @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED` */
  async assertRoomFor({ threepids = [] }: Newcomer): Promise<void> {
    if (!this.users.limited) return;
    if (threepids.some(({ medium, address }) => this.users.isReserved(medium, address))) return;
    if (await this.users.isFull()) throw this.limitReached();
  }

  /** The same before it is known what the account brings: nobody goes through the stages in vain. */
  async assertRoomForSomebody(): Promise<void> {
    if (this.config.get('mau_limit_reserved_threepids').length === 0) await this.assertRoomFor({});
  }

  /** 403 `M_RESOURCE_LIMIT_EXCEEDED`: no more users this month. */
  limitReached(): MatrixError {
    return resourceLimit(
      this.config,
      'monthly_active_user',
      'This server has reached its limit of monthly active users',
    );
  }

  #isExempt({ userId, appserviceId }: Pick<Requester, 'userId' | 'appserviceId'>): boolean {
    // What is not noted as activity cannot be counted either.
    if (appserviceId !== undefined && !this.config.get('track_appservice_user_ips')) return true;
    return this.#isSystemUser(userId);
  }

  #isSystemUser(userId: string): boolean {
    const localpart = this.config.get('server_notices.system_mxid_localpart');
    return localpart !== undefined && userId === `@${localpart}:${this.config.serverName}`;
  }
}
