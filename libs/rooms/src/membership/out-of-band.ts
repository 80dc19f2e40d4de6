import { Injectable } from '@nestjs/common';
import { buildEvent, referenceHash, signEvent, SigningKey } from '@rookery/events';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';

/** Memberships of rooms whose state this server does not know: invites from elsewhere. */
@Injectable()
export class OutOfBandMemberships {
  constructor(
    private readonly events: EventStore,
    private readonly persister: EventPersister,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly key: SigningKey,
    private readonly config: Config,
  ) {}

  /**
   * Rejects an invite on this server alone, because no other server would take the rejection: the user must be able to get
   * rid of it.
   * @param memberEventId the invite or knock
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async reject(userId: string, memberEventId: string, content: Readonly<JsonObject>): Promise<void> {
    const member = (await this.events.one(memberEventId))?.event;
    if (!member) throw MatrixError.notFound('There is nothing to be rejected');
    const { serverName } = this.config;
    const { rules } = member;
    const event = buildEvent(
      {
        roomId: member.roomId,
        type: 'm.room.member',
        stateKey: userId,
        sender: userId,
        content: { ...content, membership: 'leave' },
        originServerTs: this.clock.nowMs(),
        depth: member.depth + 1,
        prevEventIds: [memberEventId],
        authEventIds: [memberEventId],
        ...(rules.eventFormat === 'v1' && {
          eventId: `$${this.ids.letters(18)}:${serverName}`,
          referenceHashes: new Map([[memberEventId, referenceHash(member.pdu, rules)]]),
        }),
      },
      rules,
    );
    await this.persister.receiveOutOfBand(rules.version, signEvent(event, serverName, this.key));
  }
}
