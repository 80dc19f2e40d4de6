import { Injectable } from '@nestjs/common';
import type { PublicRoomListManager } from '@rookery/module-api';
import { RoomDirectory } from '@rookery/rooms';

/** `api.publicRoomListManager` */
@Injectable()
export class ModulePublicRoomList implements PublicRoomListManager {
  constructor(private readonly directory: RoomDirectory) {}

  roomIsInPublicRoomList(roomId: string): Promise<boolean> {
    return this.directory.isPublished(roomId);
  }

  addRoomToPublicRoomList(roomId: string): Promise<void> {
    return this.#publish(roomId, true);
  }

  removeRoomFromPublicRoomList(roomId: string): Promise<void> {
    return this.#publish(roomId, false);
  }

  async #publish(roomId: string, published: boolean): Promise<void> {
    if ((await this.directory.isPublished(roomId)) !== published) await this.directory.publish(roomId, published);
  }
}
