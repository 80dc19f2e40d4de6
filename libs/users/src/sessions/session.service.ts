import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { type Account, findAccount } from '../store/account.query.js';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { newSecret, secretHash } from '../common/secrets.js';
import { hasPasswordHash, heldState, holdAccount, holdAccountAlone, isAdminHeld } from '../store/account-hold.query.js';
import {
  deviceIdsOf,
  deleteDevices,
  devicesOfProviderLogins,
  ensureDevice,
  forgetDeviceAuthProviders,
  holdDevice,
  type ProviderLogins,
  setDeviceAuthProvider,
} from '../store/device.query.js';
import { forgetRegistration, isRegistrationHeld } from '../store/registration-outcome.query.js';
import { checkDeviceName } from './device-names.js';
import { type LoggedOutEvent, UserHooks } from '../hooks.js';
import {
  deleteLoginTokens,
  deleteLoginTokensOfDevices,
  deleteLoginTokensOfProvider,
  isLoginTokenHeld,
} from './login-token.query.js';
import { SessionCaches } from './user-cache.js';
import {
  deleteAccessToken,
  deleteAccessTokensWith,
  deleteTokensOfDevices,
  deleteTokensOfUser,
  devicesWithTokens,
  findRefreshToken,
  findRefreshTokenOwner,
  findTokenOwner,
  insertAccessToken,
  insertRefreshToken,
  markAccessTokenUsed,
  replaceRefreshToken,
  type RevokedToken,
  type TokenOwner,
} from './token.query.js';

/** What a login was proved with, where that can be taken back: by another password, or by whoever ends the sessions behind the token. */
export type SessionProof =
  | { readonly passwordHash: string }
  | { readonly loginTokenHash: string }
  /** Hash of the id of the interactive auth that the account came from. */
  | { readonly registrationHash: string };

/** What a login is asked to give. */
export interface SessionRequest {
  readonly userId: string;
  /** A new id when absent. */
  readonly deviceId?: string | undefined;
  /** Name of the device if it is new. */
  readonly initialDisplayName?: string | undefined;
  /** The client can refresh: it gets a short-lived access token and a refresh token. */
  readonly refreshable?: boolean | undefined;
  /** The single sign-on login behind it. */
  readonly authProvider?: { readonly id: string; readonly sessionId: string } | undefined;
  readonly isGuest?: boolean | undefined;
  /** No session is opened where it does not hold anymore. */
  readonly proof?: SessionProof | undefined;
}

/** Tokens as the client gets them. They are nowhere stored in this form. */
export interface IssuedTokens {
  readonly accessToken: string;
  readonly refreshToken?: string | undefined;
  readonly expiresInMs?: number | undefined;
}

/** How sessions come to their end, for modules. */
export interface SessionEnding {
  readonly origin?: Origin;
  /** The token of the request, where it is one of those that end, and its device. */
  readonly own?: { readonly deviceId: string | undefined; readonly accessToken: string };
}

/** Every session, but for that of one device where it is given. */
export const allBut =
  (exceptDeviceId: string | undefined) =>
  (deviceId: string | null): boolean =>
    exceptDeviceId === undefined || deviceId !== exceptDeviceId;

/** A session that was opened. */
export interface IssuedSession extends IssuedTokens {
  readonly userId: string;
  readonly deviceId: string;
}

/** Longest device id, bytes. */
const longestDeviceIdBytes = 255;

/**
 * Opens, renews and ends sessions: tokens and their devices. Every method is done when the change is durable and no
 * process-local cache knows the old state.
 */
@Injectable()
export class SessionService {
  readonly #listeners: ((userId: string | undefined) => void)[] = [];

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly hooks: UserHooks,
    private readonly caches: SessionCaches,
    private readonly modules: AccountModules,
  ) {
    caches.follow((userId) => this.#tell(userId));
  }

  /**
   * Opens a session. A device that exists is taken over: its former tokens end.
   * @throws MatrixError 400 `M_INVALID_PARAM` (device id), 403 `M_FORBIDDEN` (the device id is a cross-signing key, the proof
   *   does not hold anymore), `M_USER_DEACTIVATED`
   */
  async open(request: SessionRequest): Promise<IssuedSession> {
    const { userId } = request;
    const deviceId = request.deviceId ?? this.ids.upperLetters(10);
    checkDeviceId(deviceId);
    const displayName = checkDeviceName(request.initialDisplayName, 'truncate');
    const secrets = this.#secrets(request.refreshable ?? false);
    const { device, ended } = await this.database.write(
      async (tx) => {
        // Closed since the login was checked: the session would wake up with the account.
        this.#invalidateWith(tx, userId);
        await holdAccount(tx, userId);
        if (request.proof && !(await isProofHeld(tx, userId, request.proof)))
          throw MatrixError.forbidden('What the login was proved with has been taken back');
        const device = await ensureDevice(tx, userId, deviceId, displayName);
        if (device === 'reserved') throw MatrixError.forbidden('The device id is that of a cross-signing key');
        let ended: readonly RevokedToken[] = [];
        if (device === 'existed') {
          ended = await this.#revoke(tx, userId, [deviceId]);
          await forgetDeviceAuthProviders(tx, userId, deviceId);
        } else await this.hooks.devicesChanged.inTransaction(tx, { userId, deviceIds: [deviceId] });
        if (request.authProvider)
          await setDeviceAuthProvider(tx, userId, deviceId, request.authProvider.id, request.authProvider.sessionId);
        await this.#insert(tx, userId, deviceId, secrets, this.#sessionExpiryMs());
        return { device, ended };
      },
      { name: 'session_open' },
    );
    if (ended.length > 0) await this.modules.loggedOut(userId, deviceId, '', {});
    if (device === 'created') await this.hooks.devicesChanged.afterCommit({ userId, deviceIds: [deviceId] });
    const { isGuest = false, authProvider } = request;
    await this.hooks.loggedIn.afterCommit({ userId, deviceId, isGuest, authProvider: authProvider?.id });
    return { userId, deviceId, ...this.#issued(secrets, this.#sessionExpiryMs()) };
  }

  /**
   * Exchanges a refresh token for new tokens (MSC2918). Until one of the new tokens is used the old one may be exchanged
   * again, since the answer may have been lost. A refresh token that comes back after that was copied: the session of
   * its device ends.
   * @throws MatrixError 401 `M_UNKNOWN_TOKEN`, with `soft_logout` where the device lives on; `M_USER_LOCKED`
   */
  async refresh(refreshToken: string): Promise<IssuedTokens> {
    // Rubbish is turned away before it costs a transaction.
    const owner = await findRefreshTokenOwner(this.database, secretHash(refreshToken));
    if (!owner) throw unknownToken('Unknown refresh token', false);
    await this.hooks.refreshing.prepare(owner);
    const secrets = this.#secrets(true);
    const nowMs = this.clock.nowMs();
    const outcome = await this.database.write(
      async (tx) => {
        const { userId, deviceId } = owner;
        this.#invalidateWith(tx, userId);
        // Whoever ends sessions takes account, device and tokens in the same order.
        const { deactivated, locked } = await heldState(tx, userId);
        if (deactivated) return undefined;
        if (!(await holdDevice(tx, userId, deviceId))) return undefined;
        const old = await findRefreshToken(tx, secretHash(refreshToken));
        if (!old) return undefined;
        const { sessionExpiryMs } = old;
        if (old.superseded || (sessionExpiryMs !== undefined && sessionExpiryMs <= nowMs)) {
          await forgetRegistration(tx, userId);
          const ended = await this.#revoke(tx, userId, [deviceId]);
          await this.hooks.loggedOut.inTransaction(tx, loggedOut(userId, ended, [deviceId]));
          return { userId, ended };
        }
        if (old.expiryMs !== undefined && old.expiryMs <= nowMs) return { userId };
        if (locked) throw MatrixError.userLocked();
        if (secrets.refreshToken === undefined) {
          // Refresh tokens are given out no more: the client keeps its own, and one access token follows another.
          await deleteAccessTokensWith(tx, old.id);
          await this.#insertAccess(tx, userId, deviceId, secrets, { sessionExpiryMs, refreshTokenId: old.id });
        } else {
          const next = await this.#insert(tx, userId, deviceId, secrets, sessionExpiryMs);
          await replaceRefreshToken(tx, old.id, next!);
        }
        return { userId, issued: this.#issued(secrets, sessionExpiryMs) };
      },
      { name: 'session_refresh' },
    );
    if (!outcome) throw unknownToken('Unknown refresh token', false);
    if (outcome.ended) {
      const { userId, deviceId } = owner;
      await this.hooks.loggedOut.afterCommit(loggedOut(userId, outcome.ended, [deviceId]));
      await this.modules.loggedOut(userId, deviceId, '', {});
    }
    if (!outcome.issued) throw unknownToken('The refresh token is not valid anymore', true);
    return outcome.issued;
  }

  /** Ends one session: the token's device goes, with all its tokens; a token without a device goes alone. */
  async close(
    userId: string,
    accessTokenId: number,
    deviceId: string | undefined,
    ending: SessionEnding = {},
  ): Promise<void> {
    if (deviceId !== undefined) return this.closeDevices(userId, [deviceId], ending);
    const gone = await this.database.write(
      (tx) => {
        this.#invalidateWith(tx, userId);
        return deleteAccessToken(tx, accessTokenId);
      },
      { name: 'session_close' },
    );
    if (gone) await this.#tellLoggedOut(gone.user_id, [gone], []);
  }

  /** Deletes devices and ends their sessions. Ids that do not exist are passed over. */
  async closeDevices(userId: string, deviceIds: readonly string[], ending: SessionEnding = {}): Promise<void> {
    if (deviceIds.length === 0) return;
    const ended = new Set<string | null>(deviceIds);
    await this.tellModules(userId, ending, (deviceId) => ended.has(deviceId));
    const { tokens, devices } = await this.database.write(
      (tx) => this.closeDevicesInTransaction(tx, userId, deviceIds),
      { name: 'session_close_devices' },
    );
    await this.#tellLoggedOut(userId, tokens, devices);
  }

  /**
   * The part of {@link closeDevices} that belongs to a larger change; call {@link tellModules} before it, and {@link afterClosed}
   * with its result.
   */
  async closeDevicesInTransaction(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<ClosedSessions> {
    // It came with a session that ends, or with one before that: its id is to open no other.
    await forgetRegistration(tx, userId);
    return this.#closeDevices(tx, userId, deviceIds);
  }

  /**
   * Ends what came from logins at a single sign-on provider: devices, and login tokens that nobody has used yet.
   * @returns users and devices that went
   */
  async closeProviderLogins(logins: ProviderLogins): Promise<ReadonlyMap<string, readonly string[]>> {
    await this.database.write((tx) => deleteLoginTokensOfProvider(tx, logins), { name: 'session_close_provider' });
    const devicesOf = new Map<string, string[]>();
    for (const { user_id: userId, device_id: deviceId } of await devicesOfProviderLogins(this.database, logins))
      devicesOf.set(userId, [...(devicesOf.get(userId) ?? []), deviceId]);
    for (const [userId, deviceIds] of devicesOf) await this.closeDevices(userId, deviceIds);
    return devicesOf;
  }

  /** Ends all sessions of a user and deletes the devices, but for one device where that is given. */
  async closeAll(userId: string, exceptDeviceId?: string, ending: SessionEnding = {}): Promise<void> {
    await this.tellModules(userId, ending, allBut(exceptDeviceId));
    const { tokens, devices } = await this.database.write(
      (tx) => this.closeAllInTransaction(tx, userId, exceptDeviceId),
      { name: 'session_close_all' },
    );
    await this.#tellLoggedOut(userId, tokens, devices);
  }

  /**
   * Tells modules of sessions that are about to end, while their pushers still exist. Only what the request carried is known
   * as a token: of the others hashes are stored.
   */
  async tellModules(
    userId: string,
    { origin = {}, own }: SessionEnding,
    ends: (deviceId: string | null) => boolean = () => true,
  ): Promise<void> {
    if (!this.modules.followLogouts) return;
    const ending = (await devicesWithTokens(this.database, userId)).filter(ends);
    const tell = (deviceId: string | undefined): Promise<void> =>
      this.modules.loggedOut(userId, deviceId, own?.deviceId === deviceId ? (own?.accessToken ?? '') : '', origin);
    await Promise.all(ending.map((deviceId) => tell(deviceId ?? undefined)));
  }

  /**
   * The part of {@link closeAll} that belongs to a larger change; call {@link tellModules} before it, and {@link afterClosed}
   * with its result.
   */
  async closeAllInTransaction(tx: Tx, userId: string, exceptDeviceId?: string): Promise<ClosedSessions> {
    this.#invalidateWith(tx, userId);
    // A login that is just getting its session is waited for, so that the session ends; one that comes later finds its token gone.
    await holdAccountAlone(tx, userId);
    await forgetRegistration(tx, userId);
    const devices = (await deviceIdsOf(tx, userId)).filter((id) => id !== exceptDeviceId);
    const closed = devices.length > 0 ? await this.#closeDevices(tx, userId, devices) : { tokens: [], devices };
    const rest = await deleteTokensOfUser(tx, userId, exceptDeviceId);
    // Logins that were allowed by a session that ends.
    await deleteLoginTokens(tx, userId);
    return { tokens: [...closed.tokens, ...rest], devices: closed.devices };
  }

  /** Tells the hooks. */
  async afterClosed(userId: string, closed: ClosedSessions): Promise<void> {
    await this.#tellLoggedOut(userId, closed.tokens, closed.devices);
  }

  /**
   * A token with which an administrator acts as a user. It belongs to the administrator and has no device.
   * @throws MatrixError 403 `M_FORBIDDEN` (who asks is no administrator anymore)
   */
  async openPuppet(adminId: string, userId: string, validUntilMs: number | undefined): Promise<string> {
    const token = newSecret(this.ids, 'access');
    await this.database.write(
      async (tx) => {
        // Demoted since the request was let in: the token would go on with what the administrator may do no more.
        if (!(await isAdminHeld(tx, adminId))) throw MatrixError.forbidden('You are no administrator anymore');
        const owner = { userId: adminId, puppetsUserId: userId };
        await insertAccessToken(tx, { ...owner, tokenHash: secretHash(token), validUntilMs });
      },
      { name: 'session_open_puppet' },
    );
    return token;
  }

  /** Ends the session of an access token as it was given out; does nothing when there is none. */
  async closeByToken(accessToken: string, origin?: Origin): Promise<void> {
    const owner = await findTokenOwner(this.database, secretHash(accessToken));
    if (!owner) return;
    const { userId, puppetedBy, tokenId, deviceId } = owner;
    const ending = { ...(origin ? { origin } : {}), own: { deviceId, accessToken } };
    if (deviceId === undefined) await this.modules.loggedOut(userId, deviceId, accessToken, origin ?? {});
    await this.close(puppetedBy ?? userId, tokenId, deviceId, ending);
  }

  /** Who owns an access token; cached. Expired tokens are found too. */
  findOwner(accessToken: string): Promise<TokenOwner | undefined> {
    const hash = secretHash(accessToken);
    const nowMs = this.clock.nowMs();
    return this.caches.tokens.fetch(hash, nowMs, () => this.#readOwner(hash, nowMs));
  }

  /** As {@link findOwner}, but only where the token works: it has not expired, and its account is neither locked nor closed. */
  async findActing(accessToken: string): Promise<TokenOwner | undefined> {
    const owner = await this.findOwner(accessToken);
    const isOver = (owner?.validUntilMs ?? Infinity) <= this.clock.nowMs();
    return owner === undefined || isOver || owner.locked || owner.deactivated ? undefined : owner;
  }

  async #readOwner(hash: string, nowMs: number): Promise<TokenOwner | undefined> {
    const owner = await findTokenOwner(this.database, hash);
    if (owner?.refreshTokenId === undefined || owner.used || (owner.validUntilMs ?? Infinity) <= nowMs) return owner;
    // The client has got the answer of the refresh: from now on the former refresh token counts as copied.
    await this.database.write((tx) => markAccessTokenUsed(tx, owner.tokenId), { name: 'session_first_use' });
    return { ...owner, used: true };
  }

  /** The account of a user as whom an application service acts; cached. */
  findAccount(userId: string): Promise<Account | undefined> {
    return this.caches.accounts.fetch(userId, this.clock.nowMs(), () => findAccount(this.database, userId));
  }

  /** Forgets what is cached about a user: the account's flags have changed. */
  invalidate(userId: string): void {
    this.caches.forget(userId);
    this.#tell(userId);
  }

  #tell(userId: string | undefined): void {
    for (const listener of this.#listeners) listener(userId);
  }

  /** Calls `listener` whenever something about a user's sessions or account may have changed, or anybody's (`undefined`); it must not throw. */
  onChange(listener: (userId: string | undefined) => void): void {
    this.#listeners.push(listener);
  }

  /** Forgets what is cached with the end of a transaction, also where nobody can tell what became of it: a token must not outlive it. */
  #invalidateWith(tx: Tx, userId: string): void {
    tx.unlessRolledBack(() => this.invalidate(userId));
  }

  async #closeDevices(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<ClosedSessions> {
    this.#invalidateWith(tx, userId);
    // Devices first: a session that is just being opened or renewed is waited for, and its tokens are there to be deleted.
    const devices = await deleteDevices(tx, userId, deviceIds);
    const tokens = await this.#revoke(tx, userId, deviceIds);
    if (devices.length > 0) await this.hooks.devicesDeleted.inTransaction(tx, { userId, deviceIds: devices });
    if (tokens.length > 0) await this.hooks.loggedOut.inTransaction(tx, loggedOut(userId, tokens, devices));
    return { tokens, devices };
  }

  /** Takes tokens of devices away, and logins that they have allowed. @returns the access tokens that went */
  async #revoke(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<RevokedToken[]> {
    const tokens = await deleteTokensOfDevices(tx, userId, deviceIds);
    // Afterwards: who is just making one holds the access token.
    await deleteLoginTokensOfDevices(tx, userId, deviceIds);
    return tokens;
  }

  async #tellLoggedOut(userId: string, tokens: readonly RevokedToken[], deviceIds: readonly string[]): Promise<void> {
    if (deviceIds.length > 0) await this.hooks.devicesDeleted.afterCommit({ userId, deviceIds });
    if (tokens.length > 0) await this.hooks.loggedOut.afterCommit(loggedOut(userId, tokens, deviceIds));
  }

  #secrets(refreshable: boolean): Secrets {
    const accessToken = newSecret(this.ids, 'access');
    const lifetimeMs = this.config.get('refreshable_access_token_lifetime');
    if (!refreshable || lifetimeMs === undefined)
      return { accessToken, lifetimeMs: this.config.get('nonrefreshable_access_token_lifetime') };
    return { accessToken, lifetimeMs, refreshToken: newSecret(this.ids, 'refresh') };
  }

  #issued(secrets: Secrets, sessionExpiryMs: number | undefined): IssuedTokens {
    const left = sessionExpiryMs === undefined ? undefined : sessionExpiryMs - this.clock.nowMs();
    return {
      accessToken: secrets.accessToken,
      refreshToken: secrets.refreshToken,
      expiresInMs: earliest(secrets.lifetimeMs, left),
    };
  }

  #sessionExpiryMs(): number | undefined {
    return this.#after(this.config.get('session_lifetime'));
  }

  /** @returns the row id of the refresh token, where there is one */
  async #insert(
    tx: Tx,
    userId: string,
    deviceId: string,
    secrets: Secrets,
    sessionExpiryMs: number | undefined,
  ): Promise<number | undefined> {
    let refreshTokenId: number | undefined;
    if (secrets.refreshToken !== undefined) {
      const expiryMs = this.#after(this.config.get('refresh_token_lifetime'));
      refreshTokenId = await insertRefreshToken(tx, {
        userId,
        deviceId,
        tokenHash: secretHash(secrets.refreshToken),
        expiryMs,
        sessionExpiryMs,
      });
    }
    await this.#insertAccess(tx, userId, deviceId, secrets, { sessionExpiryMs, refreshTokenId });
    return refreshTokenId;
  }

  async #insertAccess(
    tx: Tx,
    userId: string,
    deviceId: string,
    secrets: Secrets,
    within: { readonly sessionExpiryMs: number | undefined; readonly refreshTokenId: number | undefined },
  ): Promise<void> {
    await insertAccessToken(tx, {
      userId,
      deviceId,
      tokenHash: secretHash(secrets.accessToken),
      validUntilMs: earliest(this.#after(secrets.lifetimeMs), within.sessionExpiryMs),
      refreshTokenId: within.refreshTokenId,
    });
  }

  #after(lifetimeMs: number | undefined): number | undefined {
    return lifetimeMs === undefined ? undefined : this.clock.nowMs() + lifetimeMs;
  }
}

/** Sessions that ended in a transaction. */
export interface ClosedSessions {
  readonly tokens: readonly RevokedToken[];
  readonly devices: readonly string[];
}

interface Secrets {
  readonly accessToken: string;
  readonly refreshToken?: string;
  readonly lifetimeMs: number | undefined;
}

const loggedOut = (userId: string, tokens: readonly RevokedToken[], deviceIds: readonly string[]): LoggedOutEvent => ({
  userId,
  accessTokenIds: tokens.map((token) => token.id),
  deviceIds,
});

function earliest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b);
}

/** Call {@link holdAccount} before. */
function isProofHeld(tx: Tx, userId: string, proof: SessionProof): Promise<boolean> {
  if ('passwordHash' in proof) return hasPasswordHash(tx, userId, proof.passwordHash);
  if ('registrationHash' in proof) return isRegistrationHeld(tx, proof.registrationHash, userId);
  return isLoginTokenHeld(tx, proof.loginTokenHash);
}

function checkDeviceId(deviceId: string): void {
  if (deviceId === '' || deviceId.includes('\0') || Buffer.byteLength(deviceId) > longestDeviceIdBytes)
    throw MatrixError.notDeviceId();
}

/** 401 `M_UNKNOWN_TOKEN` */
export function unknownToken(message: string, softLogout: boolean): MatrixError {
  return MatrixError.unknownToken(message, { soft_logout: softLogout });
}
