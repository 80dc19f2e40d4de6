import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database, failureLevel } from '@rookery/database';
import { Clock, eachLimit, KeyedRetries, Logger, SingleFlight } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { MembershipReader } from '../reading/membership-reader.js';
import { MemberProfiles } from '../membership/member-profiles.js';
import { changesBehind, noteBehind, noteShown, usersBehind } from './profiles-behind.query.js';
import { ShownProfiles } from './shown-profiles.js';

const shownFields: ReadonlySet<string> = new Set(['displayname', 'avatar_url']);
const parallelRooms = 8;
/** How long after a failure the rooms are told once more, milliseconds. */
const pauses = { firstMs: 10_000, longestMs: 3_600_000 };
/** Users whose rooms are brought up to date side by side after a start. */
const parallelUsers = 4;

/**
 * Tells a user's rooms about a new name or avatar: the member events are sent again. Where that fails it is done once
 * more, after a pause; whom a crash, or the end of the server, leaves behind is taken up again after the next start.
 */
@Injectable()
export class ProfilePropagation implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy {
  readonly #running = new SingleFlight<void>();
  /** Users whose rooms are behind. */
  readonly #due = new Set<string>();
  readonly #retries: KeyedRetries;
  #isStopping = false;

  constructor(
    private readonly hooks: UserHooks,
    private readonly memberships: MembershipReader,
    private readonly profiles: MemberProfiles,
    private readonly shown: ShownProfiles,
    private readonly database: Database,
    private readonly logger: Logger,
    clock: Clock,
  ) {
    this.#retries = new KeyedRetries(clock, pauses);
  }

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
    this.#retries.stop();
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
      let isShownEverywhere = true;
      const show = async (roomId: string): Promise<void> => {
        if (!(await this.shown.show(userId, roomId, profile))) isShownEverywhere = false;
      };
      await eachLimit(roomIds, parallelRooms, show, options);
      if (this.#isStopping) return;
      if (!isShownEverywhere) return this.#tryLater(userId);
      this.#retries.forget(userId);
      if (changes === undefined) return;
      await this.database.write((tx) => noteShown(tx, { userId, changes }), { name: 'profile_shown' });
    } catch (error) {
      this.logger[failureLevel(error)]('A profile could not be shown in rooms', { userId, err: error });
      this.#tryLater(userId);
    }
  }

  #tryLater(userId: string): void {
    this.#retries.later(userId, () => this.start(userId));
  }
}

/** Whether rooms show what has changed, and are to. */
const isShown = (change: { readonly fields: readonly string[]; readonly propagate: boolean }): boolean =>
  change.propagate && change.fields.some((field) => shownFields.has(field));
