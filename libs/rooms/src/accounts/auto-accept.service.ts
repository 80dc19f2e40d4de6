import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { domainOf, type JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Logger, serverRequester, SingleFlight } from '@rookery/platform';
import { AccountDataService, AccountService, isLocalUser } from '@rookery/users';
import { RoomHooks } from '../hooks.js';
import type { StoredEvent } from '../model/stored-event.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { JoinService } from '../membership/join.service.js';

/** Invites that are being accepted at a time; further ones are left to their users. */
const maxPending = 1000;
const maxAttempts = 5;
const firstPauseMs = 1000;

/** Joins rooms for local users who are invited, as far as `auto_accept_invites` says so. */
@Injectable()
export class AutoAcceptInvites implements OnModuleInit, OnModuleDestroy {
  readonly #pending = new SingleFlight<void>();
  readonly #stopping = new AbortController();

  // Eight parameters: an invite is noticed, judged by account and settings, accepted, and marked as a direct chat.
  constructor(
    private readonly hooks: RoomHooks,
    private readonly joins: JoinService,
    private readonly memberships: MembershipReader,
    private readonly accounts: AccountService,
    private readonly accountData: AccountDataService,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    if (!this.config.get('auto_accept_invites.enabled')) return;
    this.hooks.subscribe({
      afterCommit: ({ events, backfilled }) => {
        if (backfilled) return;
        for (const stored of events) if (this.#isWanted(stored)) this.#start(stored);
      },
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopping.abort();
    await this.settled();
  }

  /** Resolves when nothing is under way. */
  settled(): Promise<void> {
    return this.#pending.settled();
  }

  #isWanted({ event, rejectedReason, softFailed }: StoredEvent): boolean {
    const { type, stateKey, sender, content } = event;
    if (type !== 'm.room.member' || content['membership'] !== 'invite' || stateKey === undefined) return false;
    if (rejectedReason !== undefined || softFailed) return false;
    const { serverName } = this.config;
    if (!isLocalUser(stateKey, serverName)) return false;
    if (this.config.get('auto_accept_invites.only_for_direct_messages') && content['is_direct'] !== true) return false;
    return !this.config.get('auto_accept_invites.only_from_local_users') || domainOf(sender) === serverName;
  }

  #start(invite: StoredEvent): void {
    const { eventId, roomId } = invite.event;
    if (this.#stopping.signal.aborted || this.#pending.get(eventId)) return;
    if (this.#pending.size >= maxPending) {
      this.logger.warn('Too many invites at a time; one is not accepted for its user', { roomId });
      return;
    }
    void this.#pending.run(eventId, () => this.#accept(invite));
  }

  /** Never rejects. Servers that cannot be reached are tried again, at growing intervals. */
  async #accept({ event }: StoredEvent): Promise<void> {
    const { roomId, sender, stateKey: userId = '' } = event;
    const { signal } = this.#stopping;
    for (let attempt = 1; !signal.aborted; attempt++) {
      try {
        const account = await this.accounts.find(userId);
        if (!account || account.deactivated || account.locked || account.suspended) return;
        // The invite may have been answered, or be an old one that came with a room's state.
        const current = await this.memberships.inRoom(userId, roomId);
        if (current?.membership !== 'invite' || current.eventId !== event.eventId) return;
        await this.joins.join(serverRequester(userId), roomId, { via: [domainOf(sender)], unchecked: true });
        if (event.content['is_direct'] === true) await this.#markDirect(userId, sender, roomId);
        return;
      } catch (error) {
        if (attempt === maxAttempts) {
          this.logger.warn('An invite could not be accepted for its user', { roomId, userId, err: error });
          return;
        }
      }
      await this.clock.sleep(firstPauseMs * 2 ** (attempt - 1), signal);
    }
  }

  async #markDirect(userId: string, other: string, roomId: string): Promise<void> {
    const direct: JsonObject = { ...(await this.accountData.find(userId, undefined, 'm.direct')) };
    const rooms: unknown[] = Array.isArray(direct[other]) ? direct[other] : [];
    if (rooms.includes(roomId)) return;
    direct[other] = [...rooms, roomId] as JsonObject[string];
    await this.accountData.set(userId, undefined, 'm.direct', direct, {});
  }
}
