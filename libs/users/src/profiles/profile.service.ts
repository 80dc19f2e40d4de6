import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { isLocalUser } from '../common/user-names.js';
import { type ProfileChangedEvent, UserHooks } from '../hooks.js';
import type { Profile } from '../common/profile.js';
import { checkProfileField, checkProfileSize } from './profile-rules.js';
import { holdAccount } from '../store/account-hold.query.js';
import { findProfile, findProfiles, lockProfile, writeProfile } from './profile.query.js';
import { RemoteProfiles } from './remote-profiles.js';

/** How a profile is changed. */
export interface ProfileChangeOptions {
  readonly origin: Origin;
  /** The change is made by an administrator, or by a single sign-on login on the user's behalf. */
  readonly byAdmin?: boolean;
  /** A closed account keeps the profile that it has, also where the change counts as an administrator's. */
  readonly onlyWhileOpen?: boolean;
  readonly deactivation?: boolean;
  /** Whether rooms should be told. Default true. */
  readonly propagate?: boolean;
}

/** Profiles of local users, and look-ups of others'. */
@Injectable()
export class ProfileService {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly hooks: UserHooks,
    private readonly modules: AccountModules,
    private readonly remote: RemoteProfiles,
  ) {}

  /** The profile of a local user; `undefined` when there is none. */
  get(userId: string): Promise<Profile | undefined> {
    return findProfile(this.database, userId);
  }

  /** The profiles of several local users in one query; those without one are left out. */
  getMany(userIds: readonly string[]): Promise<Map<string, Profile>> {
    return findProfiles(this.database, userIds);
  }

  /**
   * Profiles of other servers are asked for by the process that writes: nothing of them is stored, but pauses of servers that are away are
   * kept there.
   * @throws OnlyAtWriterError in another process, for which that one is to answer
   */
  assertAnsweredHere(userId: string): void {
    if (!isLocalUser(userId, this.config.serverName)) this.database.onlyAtWriter('profiles of other servers');
  }

  /**
   * The profile as somebody may see it: of a local user, or fetched from the user's server.
   * @param requester `undefined` for a request without a token
   * @throws MatrixError 401 `M_MISSING_TOKEN`, 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND`
   */
  async lookUp(requester: Requester | undefined, userId: string, field?: string): Promise<Profile> {
    if (!requester && this.config.get('require_auth_for_profile_requests')) throw MatrixError.missingToken();
    await this.hooks.profileLookUp.prepare({ requesterId: requester?.userId, userId });
    this.assertAnsweredHere(userId);
    const profile = isLocalUser(userId, this.config.serverName)
      ? await this.get(userId)
      : await this.remote.fetch(userId, field);
    if (!profile) throw MatrixError.notFound('There is no profile for this user');
    if (field !== undefined && !Object.hasOwn(profile, field)) {
      // A user who has cleared one of the two common fields still has a profile: clients expect an empty answer there.
      if (field === 'displayname' || field === 'avatar_url') return {};
      throw MatrixError.notFound('The profile has no such field');
    }
    return field === undefined ? profile : { [field]: profile[field] };
  }

  /**
   * Sets one field of a user's own profile, or of any local profile for an administrator.
   * @param value `undefined` removes the field; so do `null` and an empty text for `displayname` and `avatar_url`
   * @throws MatrixError 400 `M_INVALID_PARAM`, `M_KEY_TOO_LARGE`, `M_PROFILE_TOO_LARGE`; 403 `M_FORBIDDEN`
   */
  async setField(requester: Requester, userId: string, field: string, value: unknown, propagate = true): Promise<void> {
    const byAdmin = requester.isAdmin;
    if (!isLocalUser(userId, this.config.serverName)) throw MatrixError.invalidParam('The user is not of this server');
    if (requester.userId !== userId && !byAdmin)
      throw MatrixError.forbidden("You cannot change another user's profile");
    const checked = checkProfileField(field, value);
    const before = await this.get(userId);
    if (!before && requester.userId !== userId) throw MatrixError.noSuchUser();
    this.#checkEnabled(field, before ?? {}, byAdmin);
    await this.update(
      userId,
      { [field]: checked },
      {
        origin: { requester },
        byAdmin: byAdmin && requester.userId !== userId,
        // Nobody is to see what a shadow-banned user does.
        propagate: propagate && !requester.shadowBanned,
      },
    );
  }

  /**
   * Changes several fields at once; `undefined` removes one. Nothing happens when nothing would change.
   * @throws MatrixError 400 `M_PROFILE_TOO_LARGE`, 403 `M_USER_DEACTIVATED`, and what the hooks refuse with
   */
  async update(
    userId: string,
    change: Readonly<Record<string, unknown>>,
    options: ProfileChangeOptions,
  ): Promise<void> {
    const { byAdmin = false, onlyWhileOpen = !byAdmin, deactivation = false } = options;
    const plan = (before: Profile): ProfileChangedEvent | undefined => planned(userId, before, change, options);
    if (!(await this.#prepare(userId, plan))) return;
    const event = await this.database.write(
      async (tx) => {
        // Nobody but an administrator gives a closed account a profile again.
        if (onlyWhileOpen && !deactivation) await holdAccount(tx, userId);
        // Another field may have changed since; the row decides.
        const current = plan(await lockProfile(tx, userId));
        if (!current) return undefined;
        await writeProfile(tx, userId, current.after);
        await this.hooks.profileChanged.inTransaction(tx, current);
        return current;
      },
      { name: 'profile' },
    );
    if (!event) return;
    await this.hooks.profileChanged.afterCommit(event);
    await this.modules.profileUpdated(
      userId,
      { displayName: event.after.displayname, avatarUrl: event.after.avatar_url },
      byAdmin,
      deactivation,
      options.origin,
    );
  }

  /**
   * Whether {@link update} would be refused, also for a user who is still to be made.
   * @throws MatrixError as {@link update}
   */
  async checkUpdate(...[userId, change, options]: Parameters<ProfileService['update']>): Promise<void> {
    await this.#prepare(userId, (before) => planned(userId, before, change, options));
  }

  /** @returns whether anything would change */
  async #prepare(userId: string, plan: (before: Profile) => ProfileChangedEvent | undefined): Promise<boolean> {
    const event = plan((await this.get(userId)) ?? {});
    if (event) await this.hooks.profileChanged.prepare(event);
    return event !== undefined;
  }

  /** The settings freeze a field once it has a value. */
  #checkEnabled(field: string, before: Profile, byAdmin: boolean): void {
    if (byAdmin || before[field] === undefined) return;
    if (field === 'displayname' && !this.config.get('enable_set_displayname'))
      throw MatrixError.forbidden('Changing the display name is disabled on this server');
    if (field === 'avatar_url' && !this.config.get('enable_set_avatar_url'))
      throw MatrixError.forbidden('Changing the avatar is disabled on this server');
  }
}

/** What a change comes to; `undefined` where everything stays. @throws MatrixError 400 `M_PROFILE_TOO_LARGE` */
function planned(
  userId: string,
  before: Profile,
  change: Readonly<Record<string, unknown>>,
  { byAdmin = false, deactivation = false, propagate = true }: ProfileChangeOptions,
): ProfileChangedEvent | undefined {
  const after = Object.fromEntries(
    Object.entries({ ...before, ...change }).filter(([, value]) => value !== undefined),
  ) as Profile;
  const fields = Object.keys(change).filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));
  if (fields.length === 0) return undefined;
  checkProfileSize(after);
  return { userId, fields, before, after, byAdmin, deactivation, propagate };
}
