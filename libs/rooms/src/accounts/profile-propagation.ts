import { Injectable, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { eachLimit, Logger, SingleFlight } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { EventPersister } from '../pipeline/event-persister.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { MemberProfiles } from '../membership/member-profiles.js';

const shownFields: ReadonlySet<string> = new Set(['displayname', 'avatar_url']);
const parallelRooms = 8;

/** Tells a user's rooms about a new name or avatar: the member events are sent again. */
@Injectable()
export class ProfilePropagation implements OnModuleInit {
  readonly #running = new SingleFlight<void>();
  /** Users whose rooms are behind. */
  readonly #due = new Set<string>();

  constructor(
    private readonly hooks: UserHooks,
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly profiles: MemberProfiles,
    private readonly persister: EventPersister,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.profileChanged.subscribe({
      afterCommit: async ({ userId, fields, propagate }) => {
        if (propagate && fields.some((field) => shownFields.has(field))) this.start(userId);
        return Promise.resolve();
      },
    });
  }

  /** Brings all rooms of a user up to date, in the background; a change while that goes on starts it once more. */
  start(userId: string): void {
    this.#due.add(userId);
    void this.#running
      .run(userId, () => this.#run(userId))
      .finally(() => {
        if (this.#due.has(userId)) this.start(userId);
      });
  }

  /** Resolves when nothing is under way for a user. */
  async settled(userId: string): Promise<void> {
    for (let run = this.#running.get(userId); run; run = this.#running.get(userId)) await run;
  }

  async #run(userId: string): Promise<void> {
    this.#due.delete(userId);
    try {
      const profile = await this.profiles.of(userId);
      const roomIds = await this.memberships.joinedRoomIds(userId);
      await eachLimit(roomIds, parallelRooms, (roomId) => this.#tell(userId, roomId, profile));
    } catch (error) {
      this.logger.error('A profile could not be shown in rooms', { userId, err: error });
    }
  }

  async #tell(userId: string, roomId: string, profile: Readonly<Record<string, unknown>>): Promise<void> {
    const member = await this.state.currentEvent(roomId, 'm.room.member', userId);
    if (member?.event.content['membership'] !== 'join') return;
    // Who is in needs nobody to let them in: the server of whoever did would have to sign every change.
    const { displayname: _name, avatar_url: _avatar, reason: _reason, ...more } = member.event.content;
    const { join_authorised_via_users_server: _authorizer, ...rest } = more;
    try {
      await this.persister.send({
        roomId,
        type: 'm.room.member',
        stateKey: userId,
        sender: userId,
        content: { ...rest, ...profile, membership: 'join' },
        skipUnchanged: true,
      });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      this.logger.warn('A room refuses a new profile', { userId, roomId, reason: error.message });
    }
  }
}
