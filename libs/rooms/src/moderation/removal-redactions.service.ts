import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Config } from '@rookery/platform';
import { PowerLevels } from '@rookery/state-res';
import { type EventBatch, RoomHooks, type RoomView } from '../hooks.js';
import { EventStore } from '../store/event-store.js';
import { isServable, type StoredEvent } from '../model/stored-event.js';
import {
  endRemovalRedaction,
  type RemovalRedaction,
  upsertRemovalRedactions,
} from '../store/removal-redactions.query.js';

interface Removals {
  readonly redactions: readonly RemovalRedaction[];
  /** Users who were let in again, by the position of that. */
  readonly pardoned: ReadonlyMap<string, number>;
}

/**
 * Redacts what users said in a room when they are kicked or banned with `redact_events` by somebody who may redact (MSC4293):
 * behind a switch. Of a banned user that is everything until the ban ends, whenever it arrives; of a kicked one what was there.
 */
@Injectable()
export class RemovalRedactions implements OnModuleInit {
  constructor(
    private readonly hooks: RoomHooks,
    private readonly events: EventStore,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    if (!this.config.get('experimental_features.msc4293_enabled')) return;
    this.hooks.subscribe<Removals>({
      prepare: (batch) => this.#removalsIn(batch),
      inTransaction: async (tx, { roomId }, removals) => {
        if (!removals) return;
        for (const [userId, ordering] of removals.pardoned) await endRemovalRedaction(tx, roomId, userId, ordering);
        await upsertRemovalRedactions(tx, removals.redactions);
      },
      afterCommit: (_, removals) => {
        for (const { roomId, userId } of removals?.redactions ?? []) this.events.forgetOf(roomId, userId);
      },
    });
  }

  async #removalsIn({ roomId, events, room, backfilled }: EventBatch): Promise<Removals> {
    const redactions: RemovalRedaction[] = [];
    const pardoned = new Map<string, number>();
    const removals = backfilled ? [] : events.filter((stored) => isServable(stored) && isRemoval(stored));
    const levels = removals.length > 0 ? await levelsIn(room) : undefined;
    for (const { event, streamOrdering } of removals) {
      const userId = event.stateKey ?? '';
      const isBan = event.content['membership'] === 'ban';
      if (!isBan) pardoned.set(userId, streamOrdering);
      if (!wantsRedaction(event.content) || !levels || levels.user(event.sender) < levels.scalar('redact')) continue;
      redactions.push({ roomId, userId, eventId: event.eventId, endOrdering: isBan ? undefined : streamOrdering });
    }
    return { redactions, pardoned };
  }
}

const isRemoval = ({ event }: StoredEvent): boolean =>
  event.type === 'm.room.member' &&
  event.sender !== event.stateKey &&
  (event.content['membership'] === 'ban' || event.content['membership'] === 'leave');

const wantsRedaction = (content: Readonly<Record<string, unknown>>): boolean =>
  content['redact_events'] === true || content['org.matrix.msc4293.redact_events'] === true;

async function levelsIn(room: RoomView): Promise<PowerLevels> {
  const [powerLevels, create] = [await room.state('m.room.power_levels', ''), await room.state('m.room.create', '')];
  return new PowerLevels(powerLevels, create, room.rules);
}
