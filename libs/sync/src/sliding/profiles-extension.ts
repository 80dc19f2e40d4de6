import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { EventStore } from '@rookery/rooms';
import { ProfileUpdates } from '../profiles/profile-updates.js';
import type { ExtensionContext, ExtensionQuery } from './extension-context.js';

/** Profiles of others in sliding sync (MSC4262). */
@Injectable()
export class ProfilesExtension {
  constructor(
    private readonly updates: ProfileUpdates,
    private readonly events: EventStore,
  ) {}

  get isEnabled(): boolean {
    return this.updates.isEnabled;
  }

  /**
   * By user what is `updated` and `removed`, `null` for who shares no room any more. Of a room that is new to the client all
   * members' profiles are, or, where it loads members as it needs them, those of who is heard in it.
   * @param fields those that are wanted; absent for all
   */
  async read(
    { userId, since, now, joined }: ExtensionQuery,
    fields: ReadonlySet<string> | undefined,
    { selection, deferred, memory, timelines }: ExtensionContext,
  ): Promise<JsonObject> {
    const isWanted = (field: string): boolean => fields === undefined || fields.has(field);
    const fresh = [...selection.rooms].filter(
      ([{ roomId }]) => joined.has(roomId) && !deferred.has(roomId) && memory?.rooms.get(roomId)?.section !== 'join',
    );
    const whole = await this.updates.membersOf(
      fresh.flatMap(([{ roomId }, { requiredState }]) => (requiredState.isLazy ? [] : [roomId])),
    );
    const lazy = [...selection.rooms].flatMap(([{ roomId }, { requiredState }]) =>
      requiredState.isLazy ? [...(timelines.get(roomId) ?? [])] : [],
    );
    const shown = await this.events.many(lazy);
    for (const user of this.updates.local([...shown.values()].map(({ event }) => event.sender))) whole.add(user);
    if (since === undefined) whole.add(userId);
    const news =
      since === undefined ? undefined : await this.updates.between({ userId, joinedRooms: joined, since, now });
    for (const user of news?.joined ?? []) whole.add(user);
    const whom = new Set([...whole, ...(news?.changed.keys() ?? [])]);
    const profiles = whom.size > 0 ? await this.updates.of(whom) : new Map<string, JsonObject>();
    const users: JsonObject = {};
    for (const user of whom) {
      if (news?.left.has(user)) continue;
      const profile: JsonObject = profiles.get(user) ?? {};
      const changed = (news?.changed.get(user) ?? []).filter(isWanted);
      const told = whole.has(user)
        ? Object.keys(profile).filter(isWanted)
        : changed.filter((field) => field in profile);
      const removed = changed.filter((field) => !Object.hasOwn(profile, field));
      if (told.length + removed.length === 0) continue;
      users[user] = {
        ...(told.length > 0 && { updated: Object.fromEntries(told.map((field) => [field, profile[field]])) }),
        ...(removed.length > 0 && { removed }),
      };
    }
    for (const user of news?.left ?? []) users[user] = null;
    return users;
  }
}
