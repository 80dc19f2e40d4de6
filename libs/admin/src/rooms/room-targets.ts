import { Injectable } from '@nestjs/common';
import { MatrixError, parseRoomId } from '@rookery/matrix-types';
import { AliasService, RoomLibrary } from '@rookery/rooms';

/** What an id without a domain is: the hash of the create event. @spec rooms/v12#room-ids */
const hash = /^[A-Za-z0-9_-]{43}$/;

/** Which room an admin request is about. */
@Injectable()
export class RoomTargets {
  constructor(
    private readonly rooms: RoomLibrary,
    private readonly aliases: AliasService,
  ) {}

  /**
   * The id of a room, known or not.
   * @throws MatrixError 400 `M_UNKNOWN`
   */
  id(text: string): string {
    const parsed = parseRoomId(text);
    if (parsed === undefined || (parsed.serverName === undefined && !hash.test(parsed.opaque)))
      throw MatrixError.badRequest('This is not a room id');
    return text;
  }

  /**
   * The id of a room that this server knows.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async known(text: string): Promise<string> {
    if (!(await this.rooms.has(text))) throw MatrixError.noSuchRoom();
    return text;
  }

  /**
   * A room by its id or one of its aliases.
   * @throws MatrixError 400 `M_UNKNOWN` for what is neither, 404 `M_NOT_FOUND` for an alias that leads nowhere
   */
  async byIdOrAlias(text: string, via: readonly string[] = []): ReturnType<AliasService['resolveRoom']> {
    if (!text.startsWith('#')) this.id(text);
    return this.aliases.resolveRoom(text, via);
  }
}
