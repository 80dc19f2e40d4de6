import { Injectable } from '@nestjs/common';
import { presenceContent, PresenceReader } from '@rookery/ephemeral';
import { type JsonObject, passesFilter } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import type { SyncContext } from '../sync-context.js';

/** Who is there. */
@Injectable()
export class PresenceSection {
  constructor(
    private readonly presence: PresenceReader,
    private readonly clock: Clock,
  ) {}

  /**
   * The presence events that are news.
   * @param joined rooms that the user is in
   * @param fresh those of them that the client hears of for the first time
   */
  async build(joined: ReadonlySet<string>, fresh: readonly string[], context: SyncContext): Promise<JsonObject[]> {
    const { userId, since, now, filter } = context;
    if (context.isGuest) return [];
    if (since !== undefined && fresh.length === 0 && !this.presence.mayHaveChanged(since.presence)) return [];
    const states = await this.presence.changes({
      userId,
      joinedRooms: joined,
      freshRooms: since === undefined ? [] : fresh,
      since: since?.presence,
      upTo: now.presence,
    });
    const nowMs = this.clock.nowMs();
    return states
      .map((state) => ({ type: 'm.presence', sender: state.userId, content: presenceContent(state, nowMs) }))
      .filter((event) => passesFilter(filter.presence, event));
  }
}
