import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { DeviceListService } from '@rookery/e2ee';
import { domainOf } from '@rookery/matrix-types';
import { batchesOf, Config, ownTurn } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { MembershipReader } from '@rookery/rooms';
import { type Profile, ProfileService, UserHooks } from '@rookery/users';
import type { SyncToken } from '../request/sync-token.js';
import {
  highestProfileUpdate,
  insertProfileUpdates,
  profileUpdatesBetween,
  profileUpdatesOf,
} from './profile-updates.query.js';

/** Users whose last change is remembered, before the operator's factor, which usually is a half. */
const maxRecipients = 600_000;
/** Changes that are looked at whomever they concern. */
const maxChanges = 1_000;
/** Users whose changes are looked up in a turn of the event loop. */
const usersPerTurn = 5_000;

/** Changes of profiles, by the users whom they concern. */
export const profileUpdatesStream = defineStream({
  name: 'profile_updates',
  takenUpTo: highestProfileUpdate,
  keys: { concerned: { maxKeys: maxRecipients } },
});

/** What is new of profiles for one user. */
export interface ProfileNews {
  /** Names of the fields that changed, by user. */
  readonly changed: ReadonlyMap<string, readonly string[]>;
  /** Who began to share a room: whole profiles are news. */
  readonly joined: ReadonlySet<string>;
  /** Who shares no room any more. */
  readonly left: ReadonlySet<string>;
}

/** Who asks, and between which positions. */
export interface ProfileQuery {
  readonly userId: string;
  /** Rooms that the user has joined now. */
  readonly joinedRooms: ReadonlySet<string>;
  readonly since: SyncToken;
  readonly now: SyncToken;
}

/**
 * Which profiles changed, for clients that want to be told in a sync (MSC4429) or sliding sync (MSC4262): users of this
 * server who share rooms. Nothing of it is written where the server is not set so.
 */
@Injectable()
export class ProfileUpdates implements OnModuleInit {
  readonly isEnabled: boolean;
  readonly #stream: Stream<'concerned'> | undefined;
  readonly #concerned: ChangedKeys | undefined;

  constructor(
    private readonly database: Database,
    private readonly memberships: MembershipReader,
    private readonly deviceLists: DeviceListService,
    private readonly profiles: ProfileService,
    private readonly userHooks: UserHooks,
    private readonly config: Config,
    streams: Streams,
  ) {
    this.isEnabled = config.get('include_profile_updates_in_sync');
    this.#stream = this.isEnabled ? streams.of(profileUpdatesStream) : undefined;
    this.#concerned = this.#stream?.changes('concerned');
  }

  onModuleInit(): void {
    const stream = this.#stream;
    if (!stream) return;
    this.userHooks.profileChanged.subscribe({
      inTransaction: (tx, { userId, fields }) => this.#record(tx, stream, userId, fields),
    });
  }

  /** What happened between two positions. No query where nothing did. */
  async between({ userId, joinedRooms, since, now }: ProfileQuery): Promise<ProfileNews> {
    const [changed, moved] = await Promise.all([
      this.#changed(userId, joinedRooms, since.profiles, now.profiles),
      this.deviceLists.companions({ userId, joinedRooms, after: since, upTo: now }),
    ]);
    const ours = (users: Iterable<string>): Set<string> => new Set(this.local(users));
    return { changed, joined: ours(moved.joined), left: ours(moved.left) };
  }

  /** Users of this server who share one of the rooms. */
  membersOf(roomIds: Iterable<string>): Promise<Set<string>> {
    return this.memberships.localUserIds([...roomIds]);
  }

  /** Profiles as they are now; those without one are left out. */
  of(userIds: Iterable<string>): Promise<Map<string, Profile>> {
    return this.profiles.getMany([...new Set(this.local(userIds))]);
  }

  /** Those of some users who are of this server: of others nothing is known. */
  local(userIds: Iterable<string>): string[] {
    return [...userIds].filter((userId) => domainOf(userId) === this.config.serverName);
  }

  async #record(tx: Tx, stream: Stream<'concerned'>, userId: string, fields: readonly string[]): Promise<void> {
    const concerned = [...(await this.deviceLists.audience(tx, [userId]))];
    const [streamId = 0] = await stream.allocateIn(tx);
    await insertProfileUpdates(tx, streamId, userId, fields);
    stream.announceIn(tx, streamId, { changed: { concerned }, users: concerned });
  }

  async #changed(
    userId: string,
    joinedRooms: ReadonlySet<string>,
    after: number,
    upTo: number,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    if (this.#concerned?.hasChanged(userId, after) !== true) return new Map();
    const all = await profileUpdatesBetween(this.database, after, upTo, maxChanges);
    // After long, looking at those who share a room costs less than looking at everybody's.
    if (all === undefined) {
      const found = new Map<string, readonly string[]>();
      const users = [...(await this.membersOf(joinedRooms)).add(userId)];
      for (const some of batchesOf(users, usersPerTurn)) {
        for (const [other, fields] of await profileUpdatesOf(this.database, some, after, upTo))
          found.set(other, fields);
        await ownTurn();
      }
      return found;
    }
    const others = [...all.keys()].filter((other) => other !== userId);
    const sharing = others.length > 0 ? await this.memberships.sharing(userId, others) : new Set<string>();
    return new Map([...all].filter(([other]) => other === userId || sharing.has(other)));
  }
}
