import { Injectable } from '@nestjs/common';
import { mediaInContent, type MediaKey, parseMxc } from '@rookery/media';
import { Config } from '@rookery/platform';
import { RoomLibrary } from '@rookery/rooms';

/** The files that the events of a room show, as far as they are not encrypted. */
@Injectable()
export class RoomMedia {
  constructor(
    private readonly rooms: RoomLibrary,
    private readonly config: Config,
  ) {}

  /** Each file once, in lists of some hundred, in the order in which they appeared. */
  async *of(roomId: string): AsyncGenerator<readonly MediaKey[]> {
    const seen = new Set<string>();
    for await (const contents of this.rooms.contentsWithMedia(roomId)) {
      const found: MediaKey[] = [];
      for (const uri of contents.flatMap((content) => mediaInContent(content))) {
        const key = parseMxc(uri, this.config.serverName);
        if (key === undefined || seen.has(`${key.origin ?? ''}/${key.mediaId}`)) continue;
        seen.add(`${key.origin ?? ''}/${key.mediaId}`);
        found.push(key);
      }
      yield found;
    }
  }
}
