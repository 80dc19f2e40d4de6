import { Injectable } from '@nestjs/common';
import { StickyEvents } from '@rookery/ephemeral';
import type { StoredEvent } from '@rookery/rooms';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';
import type { ShownTimeline } from './timeline.js';
import { EventWriter, type WrittenEvents } from './written-events.js';

const nothing: WrittenEvents = new Map();
/** In one answer, the newest; a sender counts with a hundred in a room at most. */
const maxEvents = 5_000;

/** Events that are sticky: the client gets them even where the timeline leaves them out (MSC4354). */
@Injectable()
export class StickySection {
  constructor(
    private readonly sticky: StickyEvents,
    private readonly writer: EventWriter,
  ) {}

  /** Joined rooms with sticky events that may be new to the client. Costs no query. */
  changedRooms(joined: ReadonlySet<string>, { since }: SyncContext): readonly string[] {
    return since === undefined ? [] : this.sticky.changedRooms(joined, since.sticky);
  }

  /** By room, without those that the timeline shows; of rooms that the client hears of anew all, of others the new ones. */
  async ofRooms(
    entries: readonly RoomEntry[],
    timelines: ReadonlyMap<string, ShownTimeline>,
    context: SyncContext,
  ): Promise<WrittenEvents> {
    if (!this.sticky.isEnabled) return nothing;
    const { userId, since, now, fullState } = context;
    const joined = entries.filter((entry) => entry.section === 'join');
    const anew = joined.filter((entry) => entry.fresh || fullState).map((entry) => entry.roomId);
    const stayed = new Set(joined.map((entry) => entry.roomId).filter((roomId) => !anew.includes(roomId)));
    const after = since?.sticky ?? 0;
    const read = (roomIds: readonly string[], from: number) =>
      this.sticky.newest(userId, roomIds, { after: from, upTo: now.sticky, limit: maxEvents });
    const found = [
      ...(await read(anew, 0)),
      ...(await read(since === undefined ? [] : this.sticky.changedRooms(stayed, after), after)),
    ];
    const shown = new Set(
      [...timelines.values()].flatMap(({ events }) => events.map(({ stored }) => stored.event.eventId)),
    );
    const events = found.map(({ stored }) => stored).filter(({ event }) => !shown.has(event.eventId));
    return events.length === 0 ? nothing : this.writer.state(onePage(events), context);
  }
}

async function* onePage(events: readonly StoredEvent[]): AsyncGenerator<readonly StoredEvent[]> {
  yield events;
}
