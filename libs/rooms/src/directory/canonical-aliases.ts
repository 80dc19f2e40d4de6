import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventPersister } from '../pipeline/event-persister.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { aliasesIn } from '../model/content-rules.js';
import { originOf } from '../model/requesters.js';
import { RoomStateReader } from '../state/room-state-reader.js';

const type = 'm.room.canonical_alias';

/** The aliases that a room names itself by. */
@Injectable()
export class CanonicalAliases {
  constructor(
    private readonly state: RoomStateReader,
    private readonly memberships: MembershipReader,
    private readonly persister: EventPersister,
  ) {}

  /** The aliases that the room's state names. */
  async aliasesIn(roomId: string): Promise<string[]> {
    const stored = await this.state.currentEvent(roomId, type);
    return stored ? aliasesIn(stored.event.content) : [];
  }

  /** Whether a user is in the room and has the power to set its canonical alias; the same is asked of the directory. */
  async mayChange(userId: string, roomId: string): Promise<boolean> {
    if ((await this.memberships.currentOf(roomId, userId)) !== 'join') return false;
    const levels = await this.state.powerLevels(roomId);
    return levels !== undefined && levels.user(userId) >= levels.event(type, true);
  }

  /** Takes a deleted alias out of the room's state, if the requester may; otherwise it stays there and leads nowhere. */
  async withdraw(requester: Requester, roomId: string, alias: string): Promise<void> {
    // What somebody does whom nobody hears changes no room.
    if (requester.shadowBanned) return;
    const stored = await this.state.currentEvent(roomId, type);
    if (!stored || !aliasesIn(stored.event.content).includes(alias)) return;
    const { alias: main, alt_aliases: others, ...rest } = stored.event.content;
    const kept = Array.isArray(others) ? others.filter((other) => other !== alias) : [];
    const content = {
      ...rest,
      ...(main !== alias && main !== undefined && { alias: main }),
      ...(kept.length > 0 && { alt_aliases: kept }),
    };
    try {
      await this.persister.send({
        roomId,
        type,
        stateKey: '',
        sender: requester.userId,
        content,
        origin: originOf(requester),
      });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
    }
  }
}
