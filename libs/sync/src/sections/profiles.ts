import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { createHash } from 'node:crypto';
import { ProfileUpdates } from '../profiles/profile-updates.js';
import type { SyncContext } from '../sync-context.js';

/** Profiles that devices have; each a few hundred bytes. */
const maxRemembered = 50_000;
const parts = ['join', 'leave', 'invite', 'knock'];

/** Profiles of others in a sync (MSC4429), for clients that name the fields they want. */
@Injectable()
export class ProfilesSection {
  /** By device and user: a hash of what a client that loads members as it needs them was told last. */
  readonly #told: Cache<string, string>;

  constructor(
    private readonly updates: ProfileUpdates,
    config: Config,
  ) {
    this.#told = new Cache(config, 'profiles_told', { invalidation: 'never', max: maxRemembered });
  }

  /** Whether the client wants any. */
  isWanted({ filter }: SyncContext): boolean {
    return this.updates.isEnabled && filter.profileFields !== undefined && filter.profileFields.size > 0;
  }

  /**
   * By user the fields that are news, `null` for a field that is gone; `null` in place of the fields for who shares no room any
   * more. Who loads members as they are needed is told of the senders in the answer only, but of every change.
   * @param rooms the part `rooms` of the answer
   */
  async build(joined: ReadonlySet<string>, rooms: unknown, context: SyncContext): Promise<JsonObject> {
    const { userId, since, now, filter } = context;
    if (!this.isWanted(context)) return {};
    const wanted = filter.profileFields ?? new Set<string>();
    const isLazy = filter.room.state.lazyLoadMembers;
    const inSight = isLazy ? this.updates.local(sendersIn(rooms)) : [];
    const users: JsonObject = {};
    const tell = (user: string, fields: JsonObject): void => {
      if (Object.keys(fields).length > 0) users[user] = { profile_updates: fields };
    };
    if (since === undefined) {
      const whom = isLazy ? new Set([...inSight, userId]) : (await this.updates.membersOf(joined)).add(userId);
      for (const [user, profile] of await this.updates.of(whom)) {
        const fields = pick(profile, wanted);
        if (isLazy) this.#remember(context, user, fields);
        tell(user, fields);
      }
      return users;
    }
    const news = await this.updates.between({ userId, joinedRooms: joined, since, now });
    const whom = new Set([...news.changed.keys(), ...news.joined, ...inSight]);
    const profiles = whom.size > 0 ? await this.updates.of(whom) : new Map<string, JsonObject>();
    const senders = new Set(inSight);
    for (const user of whom) {
      if (news.left.has(user)) continue;
      const whole = pick(profiles.get(user) ?? {}, wanted);
      const isNew = senders.has(user) && this.#remember(context, user, whole);
      const fields = news.joined.has(user) || isNew ? { ...whole } : {};
      for (const field of news.changed.get(user) ?? []) if (wanted.has(field)) fields[field] = whole[field] ?? null;
      tell(user, fields);
    }
    for (const user of news.left) users[user] = { profile_updates: null };
    return users;
  }

  /** @returns whether the device did not have it */
  #remember({ userId, deviceId }: SyncContext, user: string, fields: JsonObject): boolean {
    const key = `${userId}\n${deviceId ?? ''}\n${user}`;
    const hash = createHash('sha256').update(JSON.stringify(fields)).digest('base64');
    if (this.#told.get(key) === hash) return false;
    this.#told.set(key, hash);
    return true;
  }
}

/** Some fields of a profile. */
function pick(profile: JsonObject, wanted: ReadonlySet<string>): JsonObject {
  return Object.fromEntries(Object.entries(profile).filter(([field]) => wanted.has(field)));
}

/** Who wrote what is in the rooms of an answer. */
function sendersIn(rooms: unknown): Set<string> {
  const senders = new Set<string>();
  const note = (events: unknown): void => {
    if (!isJsonObject(events) || !Array.isArray(events['events'])) return;
    for (const event of events['events']) {
      const sender = isJsonObject(event) ? event['sender'] : undefined;
      if (typeof sender === 'string') senders.add(sender);
    }
  };
  for (const part of isJsonObject(rooms) ? parts.map((name) => rooms[name]) : []) {
    for (const room of isJsonObject(part) ? Object.values(part) : []) {
      if (!isJsonObject(room)) continue;
      for (const list of ['timeline', 'invite_state', 'knock_state']) note(room[list]);
    }
  }
  return senders;
}
