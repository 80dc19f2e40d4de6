import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { AccountService, AppserviceDirectory, qualifyUserId } from '@rookery/users';
import { AliasService } from '../directory/alias.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { delayedTxnPrefix } from '../reading/event-serializer.js';
import { EventCreation } from '../sending/event-creation.service.js';
import type { DelayedEventRow } from './delayed-events.query.js';

/** Sends an event that was left here, as whoever left it could have sent it at once. */
@Injectable()
export class DelayedSending {
  constructor(
    private readonly creation: EventCreation,
    private readonly memberships: MembershipService,
    private readonly aliases: AliasService,
    private readonly accounts: AccountService,
    private readonly appservices: AppserviceDirectory,
    private readonly config: Config,
  ) {}

  /** A second time makes no second event. @throws MatrixError 403 `M_FORBIDDEN` and what sending throws */
  async send(row: DelayedEventRow): Promise<void> {
    const userId = qualifyUserId(row.user_localpart, this.config.serverName);
    const account = await this.accounts.find(userId);
    const service = row.appservice_id === null ? undefined : this.appservices.byId(row.appservice_id);
    // Nobody needs to have registered a service's own user.
    if (account ? account.deactivated || account.locked || account.suspended : service?.senderUserId !== userId)
      throw MatrixError.forbidden('The account may not send events');
    const stateKey = row.state_key ?? undefined;
    const isMembership = row.event_type === 'm.room.member' && stateKey !== undefined;
    const content = JSON.parse(row.content) as JsonObject;
    const requester: Requester = {
      userId,
      deviceId: deviceOf(row),
      appserviceId: service?.id,
      isGuest: account?.isGuest ?? false,
      isAdmin: account?.isAdmin ?? false,
      shadowBanned: account?.shadowBanned ?? false,
      suspended: false,
      locked: false,
      // It was counted when it was left here, but not as the invite or the join that it may be.
      rateLimitExempt: !isMembership || content['membership'] === 'leave' || content['membership'] === 'ban',
    };
    if (isMembership) {
      const event = { roomId: row.room_id, type: row.event_type, stateKey, content };
      await this.creation.assertMaySetState(requester, event);
      return void (await this.memberships.byContent(requester, row.room_id, stateKey, content));
    }
    if (row.event_type === 'm.room.canonical_alias' && stateKey !== undefined)
      await this.aliases.checkCanonical(requester, row.room_id, content);
    await this.creation.send(
      requester,
      {
        roomId: row.room_id,
        type: row.event_type,
        stateKey,
        content,
        originServerTs: row.origin_server_ts ?? undefined,
        stickyDurationMs: row.sticky_duration_ms ?? undefined,
      },
      `${delayedTxnPrefix}${row.delay_id}`,
    );
  }
}

/** The device that left an event; `undefined` where that had none. */
function deviceOf({ device_id: deviceKey, appservice_id: appserviceId }: DelayedEventRow): string | undefined {
  const isNone =
    deviceKey === null || deviceKey === '' || (appserviceId !== null && deviceKey === `as:${appserviceId}`);
  return isNone ? undefined : deviceKey;
}
