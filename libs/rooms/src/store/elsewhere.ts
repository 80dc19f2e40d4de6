import { Injectable } from '@nestjs/common';
import { Invalidations, Streams } from '@rookery/replication';
import { RoomHooks } from '../hooks.js';
import { eventsStream } from './room-ids.js';

/** Tells what is remembered of rooms that another process has stored events, or changed what is no event. */
@Injectable()
export class StoredElsewhere {
  constructor(
    streams: Streams,
    hooks: RoomHooks,
    private readonly invalidations: Invalidations,
  ) {
    const tell: (typeof hooks.all)[number]['onElsewhere'] = (news) => {
      for (const hook of hooks.all) hook.onElsewhere?.(news);
    };
    streams.of(eventsStream).onHeard((changed) =>
      tell(
        changed && {
          rooms: [...(changed.room ?? [])],
          states: [...(changed.state ?? [])],
          members: [...(changed.member ?? [])],
        },
      ),
    );
    invalidations.on('rooms_of_users', {
      forget: (members) => tell({ rooms: [], states: [], members }),
      forgetAll: () => tell(undefined),
    });
    invalidations.on('rooms', { forget: () => tell(undefined), forgetAll: () => tell(undefined) });
    hooks.subscribe({
      onForgotten: (userId) => this.invalidations.send('rooms_of_users', [userId]),
      // Rare, and nobody says who had been in it.
      onRoomPurged: async (tx, roomId) => tx.unlessRolledBack(() => this.invalidations.send('rooms', [roomId])),
      onEventsPurged: async (tx, roomId) => tx.unlessRolledBack(() => this.invalidations.send('rooms', [roomId])),
    });
  }
}
