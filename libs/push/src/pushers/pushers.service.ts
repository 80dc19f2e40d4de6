import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, Sequence, type Tx } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, KeyedMutex, type Requester } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import {
  AccountValidity,
  canonicalAddress,
  ExperimentalFeatures,
  holdsAddress,
  isSessionHeld,
  type ThreepidEvent,
  UserHooks,
} from '@rookery/users';
import { forgetPusher, storedKey } from './pusher-keys.js';
import { emailAppId, parsePusher, parsePusherKey, type Pusher, type PusherSettings } from './pusher.js';
import {
  deleteAllPushers,
  deletePushersOfOthers,
  deletePushersOfSessions,
  haveBadges,
  highestPusher,
  pushersOf,
  upsertPusher,
  usersToPush,
} from './pusher.query.js';

const maxPushersPerUser = 100;

/**
 * Where users want their notifications to be sent. A pusher lives as long as the session that set it up.
 * @spec client-server-api#push-notifications
 */
@Injectable()
export class PushersService implements OnModuleInit {
  #ids: Sequence | undefined;
  #any = false;
  readonly #onSet: ((userId: string) => void)[] = [];
  readonly #turns = new KeyedMutex();

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly hooks: UserHooks,
    private readonly config: Config,
    private readonly features: ExperimentalFeatures,
    private readonly validity: AccountValidity,
  ) {}

  async onModuleInit(): Promise<void> {
    const takenUpTo = await highestPusher(this.database);
    this.#any = takenUpTo > 0;
    this.#ids = await Sequence.load(this.database, 'pushers', { takenUpTo });
    this.hooks.loggedOut.subscribe({
      inTransaction: (tx, { userId, deviceIds, accessTokenIds }) =>
        deletePushersOfSessions(tx, userId, deviceIds, accessTokenIds),
    });
    this.hooks.devicesDeleted.subscribe({
      inTransaction: (tx, { userId, deviceIds }) => deletePushersOfSessions(tx, userId, deviceIds, []),
    });
    this.hooks.threepidAdded.subscribe({ inTransaction: (tx, event) => this.#subscribe(tx, event) });
    this.hooks.threepidRemoved.subscribe({
      inTransaction: async (tx, { userId, medium, address }) => {
        if (medium === 'email') await forgetPusher(tx, userId, { appId: emailAppId, pushkey: address });
      },
    });
    this.hooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteAllPushers(tx, userId) });
  }

  /** Whether there may be any pusher at all, and push is switched on; otherwise nothing needs to be looked at. */
  get any(): boolean {
    return this.#any && this.config.get('push.enabled');
  }

  /** Is told of whoever has set a pusher up or changed one. The listener must not throw. */
  onSet(listener: (userId: string) => void): void {
    this.#onSet.push(listener);
  }

  /** Whether a user's devices can switch each other's pushers on and off (MSC3881). */
  canToggle(userId: string): Promise<boolean> {
    return this.features.isEnabled(userId, 'msc3881');
  }

  /** Those of some users who have a device that shows how much is unread. */
  withBadges(userIds: readonly string[]): Promise<string[]> {
    return haveBadges(this.database, userIds);
  }

  /**
   * Those with pushers for whom there is something among the events between two positions. Who has expired is sent nothing; where a module that
   * decides about that fails, which the log says, nobody has.
   */
  async usersToPush(after: number, upTo: number): Promise<string[]> {
    const users = await usersToPush(this.database, after, upTo);
    try {
      const expired = await this.validity.expiredAmong(users);
      return users.filter((userId) => !expired.has(userId));
    } catch (error) {
      if (MatrixError.is(error)) return users;
      throw error;
    }
  }

  /** A user's pushers. */
  list(userId: string): Promise<Pusher[]> {
    return pushersOf(this.database, userId);
  }

  /**
   * Sets up, changes or (`kind: null`) deletes a pusher.
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`, `M_THREEPID_NOT_FOUND` (an address that is not the user's),
   *   401 `M_UNKNOWN_TOKEN` (the session has ended meanwhile), 413 `M_TOO_LARGE` (too many)
   */
  async set(requester: Requester, body: JsonObject): Promise<void> {
    const { userId, deviceId, accessTokenId } = requester;
    if (body['kind'] === null) {
      const key = parsePusherKey(body);
      await this.database.write((tx) => forgetPusher(tx, userId, key), { name: 'delete_pusher' });
      return;
    }
    const canToggle = await this.canToggle(userId);
    const parsed = parsePusher(body, canToggle);
    const { append } = body;
    if (append !== undefined && typeof append !== 'boolean')
      throw MatrixError.invalidParam("'append' must be true or false");
    if (parsed.kind === 'email' && parsed.appId !== emailAppId)
      throw MatrixError.invalidParam(`'app_id' of an email pusher is '${emailAppId}'`);
    const address = parsed.kind === 'email' ? canonicalAddress('email', parsed.pushkey) : undefined;
    const settings = { ...parsed, pushkey: address ?? parsed.pushkey };
    if (!this.#ids) throw new Error('The pushers were asked for before they were opened');
    const id = await this.#ids.next();
    const position = this.notifier.position('events');
    const owner = { userId, deviceId, accessTokenId, ts: this.clock.nowMs(), position };
    this.#any = true;
    const store = async (tx: Tx): Promise<void> => {
      // It lives as long as the session: that must not have ended since the request came.
      if (!(await isSessionHeld(tx, requester)))
        throw MatrixError.unknownToken('The session has ended', { soft_logout: false });
      if (address !== undefined && !(await holdsAddress(tx, userId, 'email', address)))
        throw MatrixError.threepidNotFound('This address does not belong to your account');
      const known = await pushersOf(tx, userId);
      const isKnown = known.some((one) => one.appId === settings.appId && storedKey(one) === settings.pushkey);
      if (!isKnown && known.length >= maxPushersPerUser)
        throw MatrixError.tooLarge(`Not more than ${maxPushersPerUser} pushers can be stored`);
      if (append !== true) await deletePushersOfOthers(tx, userId, settings);
      if (address !== undefined) await forgetPusher(tx, userId, settings, address);
      await upsertPusher(tx, id, settings, owner, canToggle);
    };
    // One after the other: PostgreSQL does not show transactions what others are about to store.
    await this.#turns.run(userId, () => this.database.write(store, { name: 'set_pusher' }));
    for (const listener of this.#onSet) listener(userId);
  }

  /** New users get mails about missed messages, where the settings say so. */
  async #subscribe(tx: Tx, { userId, medium, address, atRegistration }: ThreepidEvent): Promise<void> {
    if (medium !== 'email' || !atRegistration || !this.#ids) return;
    if (!this.config.get('email.enable_notifs') || !this.config.get('email.notif_for_new_users')) return;
    const settings: PusherSettings = {
      kind: 'email',
      appId: emailAppId,
      pushkey: address,
      appDisplayName: 'Email Notifications',
      deviceDisplayName: address,
      profileTag: '',
      lang: 'en',
      data: {},
      enabled: true,
    };
    const position = this.notifier.position('events');
    const owner = { userId, deviceId: undefined, accessTokenId: undefined, ts: this.clock.nowMs(), position };
    await upsertPusher(tx, await this.#ids.nextIn(tx), settings, owner);
    this.#any = true;
  }
}
