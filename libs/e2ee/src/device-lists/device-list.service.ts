import { Injectable } from '@nestjs/common';
import { Database, type Db, type Tx } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { eventsStream, MembershipReader } from '@rookery/rooms';
import type { DeviceListPosition } from '../ports.js';
import {
  changedUsersSharing,
  changesInStream,
  deleteFormerChanges,
  highestDeviceListId,
  insertChanges,
  insertSignatureChange,
  lastOfNextChanges,
  latestChanges,
  latestDevices,
  localUsersSharing,
  memberTransitions,
  usersSignedBy,
} from './device-list.query.js';

/** Changes of which it is asked at once whether they concern somebody. */
const changesAtOnce = 1_000;
/** Users whose last change is remembered, before the operator's factor, which usually is a half. */
const maxRecipients = 600_000;

/** Changes of device lists, by the users whom they concern. */
export const deviceListsStream = defineStream({
  name: 'device_lists',
  takenUpTo: highestDeviceListId,
  anyProcess: true,
  keys: { concerned: { maxKeys: maxRecipients } },
  read: changesInStream,
});

/** Whose keys to fetch again, and whose need no more watching. No user is in both. */
export interface DeviceListNews {
  readonly changed: readonly string[];
  readonly left: readonly string[];
}

/** Who asks, and between which positions. */
export interface DeviceListQuery {
  readonly userId: string;
  /** Rooms that the user has joined now. */
  readonly joinedRooms: ReadonlySet<string>;
  readonly after: DeviceListPosition;
  readonly upTo: DeviceListPosition;
}

const none: DeviceListNews = { changed: [], left: [] };
/** Devices of a user that changed. */
interface DeviceChange {
  readonly userId: string;
  readonly deviceIds: readonly string[];
}

/**
 * Which users' devices changed, for those who share rooms with them. A change is recorded in the transaction that makes it;
 * who joins or leaves rooms is read from the rooms' state.
 * @spec client-server-api#tracking-the-device-list-for-a-user
 */
@Injectable()
export class DeviceListService {
  readonly stream: Stream<'concerned'>;
  readonly #concerned: ChangedKeys;
  // By room and by user: when somebody last joined or left. Positions of `events`.
  readonly #rooms: ChangedKeys;
  readonly #members: ChangedKeys;

  constructor(
    private readonly database: Database,
    private readonly memberships: MembershipReader,
    streams: Streams,
  ) {
    this.stream = streams.of(deviceListsStream);
    this.#concerned = this.stream.changes('concerned');
    const events = streams.of(eventsStream);
    this.#rooms = events.changes('room_entered_or_left');
    this.#members = events.changes('entered_or_left');
  }

  /**
   * Records that devices of a user changed, in the transaction that changes them; also of a user of another server.
   * @param deviceIds devices, or public keys for cross-signing keys; none twice; `''` where it is not known which
   * @returns the position of each
   */
  async changed(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<readonly number[]> {
    return this.changedOf(tx, [{ userId, deviceIds }]);
  }

  /** {@link changed} for several users, none of them twice. @returns the position of each device, in their order */
  async changedOf(tx: Tx, changes: readonly DeviceChange[]): Promise<readonly number[]> {
    const users = changes.flatMap(({ userId, deviceIds }) => (deviceIds.length > 0 ? [userId] : []));
    return users.length === 0 ? [] : this.tell(tx, changes, await this.audience(tx, users));
  }

  /**
   * {@link changedOf} where it is known whom the changes concern, all of them together: from here on others may wait for the end of the
   * transaction.
   */
  async tell(tx: Tx, changes: readonly DeviceChange[], audience: ReadonlySet<string>): Promise<readonly number[]> {
    const devices = changes.flatMap(({ userId, deviceIds }) => deviceIds.map((deviceId) => ({ userId, deviceId })));
    if (devices.length === 0) return [];
    const ids = await this.stream.allocateIn(tx, devices.length);
    await insertChanges(
      tx,
      devices.map((device, index) => ({ ...device, position: ids[index] ?? 0 })),
    );
    this.#tell(tx, ids.at(-1) ?? 0, audience);
    return ids;
  }

  /**
   * Users of this server who are in a room with one of some users, or in one to which such a one is invited, and these: whom changes concern.
   * Rooms are read some at a time, with a turn for others in between.
   */
  async audience(db: Db, userIds: readonly string[]): Promise<Set<string>> {
    const audience = await localUsersSharing(db, userIds);
    for (const userId of userIds) audience.add(userId);
    return audience;
  }

  /** Tells once more of the latest change of each of some users, for servers that may have missed it. */
  async repeat(tx: Tx, userIds: readonly string[]): Promise<void> {
    const latest = [...(await latestDevices(tx, userIds))];
    await this.changedOf(
      tx,
      latest.map(([userId, deviceId]) => ({ userId, deviceIds: [deviceId] })),
    );
  }

  /**
   * Records that a user signed keys of others, or has another key to sign them with, which only that user gets to see.
   * @returns the position
   */
  async signed(tx: Tx, fromUserId: string, userIds: readonly string[]): Promise<number> {
    const [streamId = 0] = await this.stream.allocateIn(tx);
    await insertSignatureChange(tx, streamId, fromUserId, userIds.toSorted());
    this.#tell(tx, streamId, [fromUserId]);
    return streamId;
  }

  /**
   * Forgets which devices changed before those that changed last, of users with changes behind a position: of some users at a time. Call it
   * again with what it returns, until that is `upTo`.
   * @param upTo nobody must need to know any more which devices changed up to there
   * @returns up to where it has come
   */
  async forgetFormer(after: number, upTo: number): Promise<number> {
    const next = (await lastOfNextChanges(this.database, after, upTo, changesAtOnce)) ?? upTo;
    await this.database.write((tx) => deleteFormerChanges(tx, after, next), {
      ...{ name: 'forget_former_device_changes', anyProcess: true },
    });
    return next;
  }

  /** Whether {@link changes} could find anything; `false` is certain. Costs no query. */
  mayHaveChanged(userId: string, joinedRooms: ReadonlySet<string>, after: DeviceListPosition): boolean {
    return (
      this.#concerned.hasChanged(userId, after.deviceLists) ||
      this.#members.hasChanged(userId, after.events) ||
      this.#rooms.changedSince(joinedRooms, after.events).length > 0
    );
  }

  /**
   * `changed`: users who share a room or are invited to one and whose keys changed, or who began to share one or were invited to one,
   * since what is said there may be meant for them; `left`: those who neither share a room nor are invited to one any more. No query where
   * nothing happened; six at most, but for clients that were away for more than a thousand changes.
   */
  async changes(query: DeviceListQuery): Promise<DeviceListNews> {
    if (!this.mayHaveChanged(query.userId, query.joinedRooms, query.after)) return none;
    const [keys, { joined, left }] = await Promise.all([this.#changedKeys(query), this.companions(query)]);
    const changed = new Set([...keys, ...joined]);
    return {
      changed: [...changed].filter((other) => !left.has(other)),
      left: [...left],
    };
  }

  /**
   * Who began to share a room with the user or was invited to one, and who neither shares a room nor is invited to one any
   * more; somebody may be in both. No query where nobody moved.
   */
  async companions(query: DeviceListQuery): Promise<{
    readonly joined: ReadonlySet<string>;
    readonly left: ReadonlySet<string>;
  }> {
    const { userId } = query;
    const { joined, left } = await this.#moved(query);
    const gone = [...left].filter((other) => other !== userId);
    const still = gone.length > 0 ? await this.memberships.inSightOf(userId, gone) : new Set<string>();
    return { joined, left: new Set(gone.filter((other) => !still.has(other))) };
  }

  /** The position of the latest change of each of some users; those who never had one are absent. */
  latest(userIds: readonly string[]): Promise<Map<string, number>> {
    return latestChanges(this.database, userIds);
  }

  async #changedKeys({ userId, after, upTo }: DeviceListQuery): Promise<string[]> {
    if (!this.#concerned.hasChanged(userId, after.deviceLists)) return [];
    const [sharing, signed] = await Promise.all([
      this.#changedCompanions(userId, after.deviceLists, upTo.deviceLists),
      usersSignedBy(this.database, userId, after.deviceLists, upTo.deviceLists),
    ]);
    return sharing.concat(signed);
  }

  /**
   * Those whose keys changed and who share a room or are invited to one. It is asked of each change on the server: where a client was away for long, of some at a
   * time, with a turn for others in between.
   */
  async #changedCompanions(userId: string, after: number, upTo: number): Promise<string[]> {
    const changed: string[] = [];
    for (let from = after; from < upTo;) {
      // There are no more changes than positions.
      const isLast = upTo - from <= changesAtOnce;
      const next = isLast ? undefined : await lastOfNextChanges(this.database, from, upTo, changesAtOnce);
      changed.push(...(await changedUsersSharing(this.database, userId, from, next ?? upTo)));
      if (next === undefined) break;
      from = next;
      await ownTurn();
    }
    return changed;
  }

  async #moved({ userId, joinedRooms, after, upTo }: DeviceListQuery): Promise<{
    joined: Set<string>;
    left: Set<string>;
  }> {
    const joined = new Set<string>();
    const left = new Set<string>();
    const { entered, quit } = await this.#ownMoves(userId, joinedRooms, after.events, upTo.events);
    const rooms = this.#rooms.changedSince(joinedRooms, after.events).concat(quit);
    const [others, members] = await Promise.all([
      rooms.length > 0 ? memberTransitions(this.database, rooms, after.events, upTo.events) : [],
      entered.length + quit.length > 0
        ? this.memberships.userIdsIn([...entered, ...quit], ['join', 'invite'])
        : undefined,
    ]);
    for (const roomId of entered) for (const other of members?.get(roomId) ?? []) joined.add(other);
    for (const roomId of quit) for (const other of members?.get(roomId) ?? []) left.add(other);
    for (const { roomId, userId: other, now } of others) {
      if (other === userId) continue;
      if ((now === 'join' || now === 'invite') && joinedRooms.has(roomId)) joined.add(other);
      else left.add(other);
    }
    return { joined, left };
  }

  /** Rooms that the user joined and left since. */
  async #ownMoves(
    userId: string,
    joinedRooms: ReadonlySet<string>,
    after: number,
    upTo: number,
  ): Promise<{ entered: string[]; quit: string[] }> {
    if (!this.#members.hasChanged(userId, after)) return { entered: [], quit: [] };
    const changes = await this.memberships.changesOf(userId, after, upTo);
    const rooms = [...new Set(changes.map(({ roomId }) => roomId))];
    if (rooms.length === 0) return { entered: [], quit: [] };
    const moves = await memberTransitions(this.database, rooms, after, upTo, userId);
    const own = moves.filter(({ before, now }) => before === 'join' || now === 'join');
    const moved = [...new Set(own.map(({ roomId }) => roomId))];
    return {
      entered: moved.filter((roomId) => joinedRooms.has(roomId)),
      quit: moved.filter((roomId) => !joinedRooms.has(roomId)),
    };
  }

  #tell(tx: Tx, position: number, users: Iterable<string>): void {
    const concerned = [...users];
    this.stream.announceIn(tx, position, { changed: { concerned }, users: concerned });
  }
}
