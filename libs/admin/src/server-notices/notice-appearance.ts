import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { EventPersister, MemberProfiles, RoomStateReader } from '@rookery/rooms';
import { ProfileService } from '@rookery/users';

/** Most rooms whose looks are known to be right. */
const maxRemembered = 20_000;

/** Names and pictures of the sender of notices and of its rooms, as the settings have them. */
@Injectable()
export class NoticeAppearance {
  /** Rooms that look as they should, and by which settings. */
  readonly #rooms: Cache<string, string>;
  #sender = '';

  constructor(
    private readonly config: Config,
    private readonly profiles: ProfileService,
    private readonly members: MemberProfiles,
    private readonly state: RoomStateReader,
    private readonly persister: EventPersister,
  ) {
    this.#rooms = new Cache(config, 'notice_rooms', {
      invalidation: 'on write',
      elsewhere: 'not kept',
      max: 2 * maxRemembered,
    });
  }

  /** Gives the sender its profile; rooms that exist hear of it with their next notice. */
  async refreshSender(sender: string): Promise<void> {
    if (this.#sender === this.#wanted()) return;
    const wanted = this.#wanted();
    await this.profiles.update(
      sender,
      {
        displayname: this.config.get('server_notices.system_mxid_display_name'),
        avatar_url: this.config.get('server_notices.system_mxid_avatar_url') || undefined,
      },
      { origin: { byAdmin: true }, byAdmin: true, propagate: false },
    );
    this.#sender = wanted;
  }

  /** Brings a room that was made under other settings up to date. */
  async refreshRoom(sender: string, roomId: string): Promise<void> {
    const wanted = this.#wanted();
    if (this.#rooms.get(roomId) === wanted) return;
    const types = ['m.room.name', 'm.room.topic', 'm.room.avatar'];
    const current = new Map(
      (await this.state.current(roomId, { types: types.map((type) => [type, '']) })).map(({ event }) => [
        event.type,
        event.content,
      ]),
    );
    const set = async (type: string, key: string, value: string | undefined, none: JsonObject): Promise<void> => {
      const now = current.get(type)?.[key];
      // What the settings do not name anymore is taken away.
      if (now === value || (!value && !now)) return;
      await this.#send(sender, roomId, type, '', value ? { [key]: value } : none);
    };
    await set('m.room.name', 'name', this.config.get('server_notices.room_name'), { name: '' });
    await set('m.room.topic', 'topic', this.config.get('server_notices.room_topic'), { topic: '' });
    await set('m.room.avatar', 'url', this.config.get('server_notices.room_avatar_url'), {});
    const profile = await this.members.of(sender);
    await this.#send(sender, roomId, 'm.room.member', sender, { ...profile, membership: 'join' });
    this.#rooms.set(roomId, wanted);
  }

  async #send(sender: string, roomId: string, type: string, stateKey: string, content: JsonObject): Promise<void> {
    await this.persister.send({ roomId, type, stateKey, sender, content, skipUnchanged: true, unchecked: true });
  }

  #wanted(): string {
    return JSON.stringify([
      this.config.get('server_notices.system_mxid_display_name'),
      this.config.get('server_notices.system_mxid_avatar_url'),
      this.config.get('server_notices.room_name'),
      this.config.get('server_notices.room_topic'),
      this.config.get('server_notices.room_avatar_url'),
    ]);
  }
}
