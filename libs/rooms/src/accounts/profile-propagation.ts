import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { eachLimit, Logger, SingleFlight } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { EventPersister } from '../pipeline/event-persister.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { MemberProfiles } from '../membership/member-profiles.js';
import { changesBehind, noteBehind, noteShown, usersBehind } from './profiles-behind.query.js';

const shownFields: ReadonlySet<string> = new Set(['displayname', 'avatar_url']);
const parallelRooms = 8;
/** Users whose rooms are brought up to date side by side after a start. */
const parallelUsers = 4;

/**
 * Tells a user's rooms about a new name or avatar: the member events are sent again. Whom a crash, or the end of the server, leaves behind is
 * taken up again after the next start.
 */
@Injectable()
export class ProfilePropagation implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy {
  readonly #running = new SingleFlight<void>();
  /** Users whose rooms are behind. */
  readonly #due = new Set<string>();
  #isStopping = false;

  constructor(
    private readonly hooks: UserHooks,
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly profiles: MemberProfiles,
    private readonly persister: EventPersister,
    private readonly database: Database,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.profileChanged.subscribe({
      inTransaction: async (tx, event) => {
        if (isShown(event)) await noteBehind(tx, event.userId);
      },
      afterCommit: async (event) => {
        if (isShown(event)) this.start(event.userId);
        return Promise.resolve();
      },
    });
  }

  onApplicationBootstrap(): void {
    if (this.database.isBesideWriter) return;
    this.#resume().catch((error: unknown) =>
      this.logger.error('Could not find out whose profiles are to be shown in rooms', { err: error }),
    );
  }

  async onModuleDestroy(): Promise<void> {
    this.#isStopping = true;
    await this.#running.settled();
  }

  /** Brings all rooms of a user up to date, in the background; a change while that goes on starts it once more. */
  start(userId: string): void {
    this.#due.add(userId);
    void this.#running
      .run(userId, () => this.#run(userId))
      .finally(() => {
        if (this.#due.has(userId) && !this.#isStopping) this.start(userId);
      });
  }

  /** Resolves when nothing is under way for a user. */
  async settled(userId: string): Promise<void> {
    for (let run = this.#running.get(userId); run; run = this.#running.get(userId)) await run;
  }

  async #resume(): Promise<void> {
    const users = await usersBehind(this.database);
    const resume = (userId: string): Promise<void> => {
      this.start(userId);
      return this.settled(userId);
    };
    await eachLimit(users, parallelUsers, resume, { while: () => !this.#isStopping });
  }

  async #run(userId: string): Promise<void> {
    this.#due.delete(userId);
    try {
      // Before the profile: whatever changes afterwards is shown once more.
      const changes = await changesBehind(this.database, userId);
      const profile = await this.profiles.of(userId);
      const roomIds = await this.memberships.joinedRoomIds(userId);
      const options = { while: () => !this.#isStopping };
      await eachLimit(roomIds, parallelRooms, (roomId) => this.#tell(userId, roomId, profile), options);
      if (changes === undefined || this.#isStopping) return;
      await this.database.write((tx) => noteShown(tx, { userId, changes }), { name: 'profile_shown' });
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

/** Whether rooms show what has changed, and are to. */
const isShown = (change: { readonly fields: readonly string[]; readonly propagate: boolean }): boolean =>
  change.propagate && change.fields.some((field) => shownFields.has(field));
