import { mediaInContent } from '@rookery/media';
import type { TimelineReader } from '@rookery/rooms';

const eventsPerPage = 500;

/** The `mxc:` URIs that a room's events show, page by page; a page may be empty, and a URI may come more than once. */
export async function* mediaInRoom(timeline: TimelineReader, roomId: string): AsyncGenerator<string[]> {
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
