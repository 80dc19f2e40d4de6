import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { createHash } from 'node:crypto';
import { ProfileUpdates } from '../profiles/profile-updates.js';
import type { SyncContext } from '../sync-context.js';

/** Stands among what is remembered of a device's rooms for profiles. */
const profilesPlace = '';

/** Profiles of others in a sync (MSC4429), for clients that name the fields they want. */
@Injectable()
export class ProfilesSection {
  constructor(private readonly updates: ProfileUpdates) {}

  /** Whether the client wants any. */
  isWanted({ filter }: SyncContext): boolean {
    return this.updates.isEnabled && filter.profileFields !== undefined && filter.profileFields.size > 0;
  }

  /**
   * By user the fields that are news, `null` for a field that is gone; `null` in place of the fields for who shares no room any
   * more. Who loads members as they are needed is told of the senders in the answer only, but of every change.
   * @param senders who wrote what the rooms of the answer show
   */
  async build(joined: ReadonlySet<string>, senders: ReadonlySet<string>, context: SyncContext): Promise<JsonObject> {
    const { userId, since, now, filter } = context;
    const wanted = filter.profileFields ?? new Set<string>();
    const isLazy = filter.room.state.lazyLoadMembers;
    const inSight = isLazy ? this.updates.local(senders) : [];
    const users: JsonObject = {};
    const tell = (user: string, fields: JsonObject): void => {
      if (Object.keys(fields).length > 0) users[user] = { profile_updates: fields };
    };
    if (since === undefined) {
      const whom = isLazy ? new Set([...inSight, userId]) : (await this.updates.membersOf(joined)).add(userId);
      const whole = new Map([...(await this.updates.of(whom))].map(([user, profile]) => [user, pick(profile, wanted)]));
      if (isLazy) await this.#lacking(context, whole);
      for (const [user, fields] of whole) tell(user, fields);
      return users;
    }
    const news = await this.updates.between({ userId, joinedRooms: joined, since, now });
    const whom = new Set([...news.changed.keys(), ...news.joined, ...inSight]);
    const profiles = whom.size > 0 ? await this.updates.of(whom) : new Map<string, JsonObject>();
    const ofSenders = new Map(inSight.map((user) => [user, pick(profiles.get(user) ?? {}, wanted)]));
    for (const user of news.left) ofSenders.delete(user);
    const lacking = await this.#lacking(context, ofSenders);
    for (const user of whom) {
      if (news.left.has(user)) continue;
      const whole = pick(profiles.get(user) ?? {}, wanted);
      const isNew = lacking.has(user);
      const fields = news.joined.has(user) || isNew ? { ...whole } : {};
      for (const field of news.changed.get(user) ?? []) if (wanted.has(field)) fields[field] = whole[field] ?? null;
      tell(user, fields);
    }
    for (const user of news.left) users[user] = { profile_updates: null };
    return users;
  }

  /** Users of whom the device has another profile, or none. It is remembered with the members that it was sent. */
  async #lacking({ lazyMembers, now }: SyncContext, profiles: ReadonlyMap<string, JsonObject>): Promise<Set<string>> {
    const wanted = new Map(
      [...profiles].map(([user, fields]) => [
        user,
        createHash('sha256').update(JSON.stringify(fields)).digest('base64'),
      ]),
    );
    if (wanted.size === 0 || lazyMembers === undefined) return new Set(wanted.keys());
    const taken = await lazyMembers.take([{ roomId: profilesPlace, wanted, anew: false }], now.events);
    return new Set(taken.get(profilesPlace)?.keys());
  }
}

/** Some fields of a profile. */
function pick(profile: JsonObject, wanted: ReadonlySet<string>): JsonObject {
  return Object.fromEntries(Object.entries(profile).filter(([field]) => wanted.has(field)));
}
