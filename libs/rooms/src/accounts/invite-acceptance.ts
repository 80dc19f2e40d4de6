import { Injectable } from '@nestjs/common';
import { domainOf, type JsonObject } from '@rookery/matrix-types';
import { serverRequester, SingleFlight } from '@rookery/platform';
import { defineRpc, Streams } from '@rookery/replication';
import { AccountDataService, AccountService } from '@rookery/users';
import { JoinService } from '../membership/join.service.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { EventStore } from '../store/event-store.js';
import { eventsStream } from '../store/room-ids.js';

/** How long servers may take with a join, milliseconds. */
const timeoutMs = 120_000;

/** Accepts an invite for its user, by the id of the event; answered by the process that writes events. */
export const acceptInvite = defineRpc<{ readonly eventId: string }, void>('accept_invite', { timeoutMs });

/** Joins rooms for users who are invited, in the process that writes events: once each, whoever asks for it and how often. */
@Injectable()
export class InviteAcceptance {
  readonly #underWay = new SingleFlight<void>();

  constructor(
    private readonly joins: JoinService,
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly accounts: AccountService,
    private readonly accountData: AccountDataService,
    streams: Streams,
  ) {
    streams
      .of(eventsStream)
      .serve(acceptInvite, ({ eventId }) => this.#underWay.run(eventId, () => this.#accept(eventId)));
  }

  /** Rejects as the join does; does nothing where the invite does not count any more, or its user may not act. */
  async #accept(eventId: string): Promise<void> {
    const event = (await this.events.one(eventId))?.event;
    const userId = event?.stateKey;
    if (event === undefined || userId === undefined) return;
    const account = await this.accounts.find(userId);
    if (!account || account.deactivated || account.locked || account.suspended) return;
    const { roomId, sender } = event;
    // The invite may have been answered, or be an old one that came with a room's state.
    const current = await this.memberships.inRoom(userId, roomId);
    if (current?.membership !== 'invite' || current.eventId !== eventId) return;
    await this.joins.join(serverRequester(userId), roomId, { via: [domainOf(sender)], unchecked: true });
    if (event.content['is_direct'] === true) await this.#markDirect(userId, sender, roomId);
  }

  /** Others may be accepted at the same time. */
  #markDirect(userId: string, other: string, roomId: string): Promise<void> {
    const mark = (direct: Readonly<JsonObject>): Readonly<JsonObject> => {
      const rooms: unknown[] = Array.isArray(direct[other]) ? direct[other] : [];
      return rooms.includes(roomId) ? direct : { ...direct, [other]: [...rooms, roomId] };
    };
    return this.accountData.change(userId, 'm.direct', mark, {});
  }
}
