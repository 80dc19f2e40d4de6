import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { MissingEventsSource } from '@rookery/rooms';
import { MissingEvents } from './missing-events.js';
import { type KnownState, StoredStates } from './stored-states.js';

/** What rooms are told of that is missing before events: events by themselves, and states whose events are stored by then. */
@Injectable()
export class MissingAncestors implements MissingEventsSource {
  constructor(
    private readonly missing: MissingEvents,
    private readonly states: StoredStates,
  ) {}

  missingEvents(...asked: Parameters<MissingEvents['missingEvents']>): Promise<readonly RoomEvent[]> {
    return this.missing.missingEvents(...asked);
  }

  events(...asked: Parameters<MissingEvents['events']>): Promise<readonly RoomEvent[]> {
    return this.missing.events(...asked);
  }

  authChain(...asked: Parameters<MissingEvents['authChain']>): Promise<readonly RoomEvent[]> {
    return this.missing.authChain(...asked);
  }

  stateBefore(origin: string, event: RoomEvent): Promise<KnownState | undefined> {
    return this.states.beforeMissing(origin, event);
  }
}
