import { Injectable } from '@nestjs/common';
import { Config, serverRequester } from '@rookery/platform';
import { AccountService } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { MembershipService } from '../membership/membership.service.js';

/** Makes the rooms of `auto_join_rooms` that do not exist, and opens those that one is invited to. */
@Injectable()
export class AutoJoinRooms {
  constructor(
    private readonly creation: RoomCreation,
    private readonly membership: MembershipService,
    private readonly state: RoomStateReader,
    private readonly accounts: AccountService,
    private readonly config: Config,
  ) {}

  /**
   * Makes a room, when the first real user of the server asks for it.
   * @param alias of this server
   * @returns its id; nothing when it is not to be made
   * @throws MatrixError as {@link RoomCreation.create}
   */
  async create(alias: string, userId: string): Promise<string | undefined> {
    const { config } = this;
    if (!config.get('autocreate_auto_join_rooms') || !(await this.accounts.isOnlyPerson(userId))) return undefined;
    const { roomId } = await this.creation.create(
      serverRequester(this.#host ?? userId),
      {
        preset: config.get('autocreate_auto_join_room_preset'),
        room_alias_name: alias.slice(1, alias.indexOf(':')),
        ...(!config.get('autocreate_auto_join_rooms_federated') && { creation_content: { 'm.federate': false } }),
      },
      { unchecked: true },
    );
    return roomId;
  }

  /** Has the user of `auto_join_mxid_localpart` invite somebody into a room that one cannot join otherwise. */
  async open(roomId: string, userId: string): Promise<void> {
    const host = this.#host;
    if (host === undefined || host === userId) return;
    const rules = await this.state.currentEvent(roomId, 'm.room.join_rules', '');
    if (!rules || rules.event.content['join_rule'] === 'public') return;
    await this.membership.invite(serverRequester(host), roomId, userId, { unchecked: true });
  }

  get #host(): string | undefined {
    const localpart = this.config.get('auto_join_mxid_localpart');
    return localpart === undefined ? undefined : `@${localpart}:${this.config.serverName}`;
  }
}
