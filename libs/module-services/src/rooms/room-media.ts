import { Injectable } from '@nestjs/common';
import { mediaInContent, Quarantine } from '@rookery/media';
import { Config } from '@rookery/platform';
import { TimelineReader } from '@rookery/rooms';
import { checkRoomId } from './check-room-id.js';
import { nobodyOf } from './nobody.js';

const eventsPerPage = 500;

/** What modules may do about the media of rooms. */
@Injectable()
export class ModuleRoomMedia {
  constructor(
    private readonly config: Config,
    private readonly timeline: TimelineReader,
    private readonly quarantine: Quarantine,
  ) {}

  async setRoomMediaQuarantined(roomId: string, quarantined: boolean): Promise<number> {
    checkRoomId(roomId);
    let changed = 0;
    for await (const uris of mediaInRoom(this.timeline, roomId)) {
      changed += await this.quarantine.changeByUri(uris, quarantined ? nobodyOf(this.config) : undefined);
    }
    return changed;
  }
}

/** The `mxc:` URIs that a room's events show, page by page; a page may be empty, and a URI may come more than once. */
async function* mediaInRoom(timeline: TimelineReader, roomId: string): AsyncGenerator<string[]> {
  let from = await timeline.lastPlace(roomId);
  while (from !== undefined) {
    const page = await timeline.page(roomId, from, {
      direction: 'b',
      limit: eventsPerPage,
      filter: { containsUrl: true },
    });
    yield page.events.flatMap(({ event }) => mediaInContent(event.content));
    from = page.end;
  }
}
