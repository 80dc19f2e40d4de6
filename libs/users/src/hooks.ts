import { Injectable } from '@nestjs/common';
import { Logger } from '@rookery/platform';
import { HookPoint } from './common/hook-point.js';
import type { Profile } from './common/profile.js';

/** A new account. */
export interface RegisteredEvent {
  readonly userId: string;
  readonly isGuest: boolean;
  readonly appserviceId?: string | undefined;
  /** `support`, `bot`, or one of the server's own types. */
  readonly userType?: string | undefined;
  readonly byAdmin: boolean;
  readonly shadowBanned: boolean;
  /** The single sign-on provider behind it. */
  readonly authProvider?: string | undefined;
}

/** A session that was opened. */
export interface LoggedInEvent {
  readonly userId: string;
  readonly deviceId: string;
  readonly isGuest: boolean;
  /** The single sign-on provider behind it. */
  readonly authProvider?: string | undefined;
}

/** A profile of ours has changed. */
export interface ProfileChangedEvent {
  readonly userId: string;
  /** Names of the fields that changed. */
  readonly fields: readonly string[];
  readonly before: Profile;
  readonly after: Profile;
  readonly byAdmin: boolean;
  readonly deactivation: boolean;
  /** Whether rooms should be told. */
  readonly propagate: boolean;
}

/** Somebody asks for a profile over the client API. */
export interface ProfileLookUpEvent {
  /** Absent for a request without a token. */
  readonly requesterId?: string | undefined;
  readonly userId: string;
}

/** A client renews the access token of a session. */
export interface RefreshingEvent {
  readonly userId: string;
  readonly deviceId: string;
}

/** Devices of one user. */
export interface DevicesEvent {
  readonly userId: string;
  readonly deviceIds: readonly string[];
  /** They were there before under other names. */
  readonly renamed?: boolean;
}

/** Tokens that no longer work. */
export interface LoggedOutEvent {
  readonly userId: string;
  /** Row ids of the access tokens; pushers made with them go. */
  readonly accessTokenIds: readonly number[];
  /** Devices that have no session anymore, also such as stay. */
  readonly deviceIds: readonly string[];
}

/** An account that was closed. */
export interface DeactivatedEvent {
  readonly userId: string;
  /** The user asked for their data to be forgotten. */
  readonly erase: boolean;
  readonly byAdmin: boolean;
  /** In `afterCommit`: aborts where the account is opened again. What is still under way for its end is to end then. */
  readonly reopened?: AbortSignal;
}

/** Users who were active lately; told some seconds later, and again every few minutes while they are. */
export interface ActiveEvent {
  readonly userIds: readonly string[];
}

/** Account data of a user, global where `roomId` is absent. */
export interface AccountDataChangedEvent {
  readonly userId: string;
  readonly roomId?: string | undefined;
  readonly type: string;
  readonly content: Readonly<Record<string, unknown>>;
  /** Position in the account data stream. */
  readonly streamId: number;
}

/** Account data that is about to be stored for a room. */
export interface RoomDataChangingEvent {
  readonly userId: string;
  readonly roomId: string;
  readonly type: string;
}

/** A third-party identifier that was added to or removed from an account. */
export interface ThreepidEvent {
  readonly userId: string;
  readonly medium: string;
  readonly address: string;
  /** The registration of which it is a part, rather than a later addition. */
  readonly atRegistration: boolean;
}

/**
 * What higher libs attach to: subscribe in `onModuleInit`. `prepare` reads and may refuse by throwing a MatrixError,
 * `inTransaction` writes with the change and may abort it, `afterCommit` is best effort and awaited before the answer.
 */
@Injectable()
export class UserHooks {
  constructor(private readonly logger: Logger) {}

  readonly registered = this.#point<RegisteredEvent>('registered');
  /** A profile is about to be shown; `prepare` may refuse (users who share no room). */
  readonly profileLookUp = this.#point<ProfileLookUpEvent>('profileLookUp');
  readonly profileChanged = this.#point<ProfileChangedEvent>('profileChanged');
  /** Devices that are new or renamed. */
  readonly devicesChanged = this.#point<DevicesEvent>('devicesChanged');
  readonly devicesDeleted = this.#point<DevicesEvent>('devicesDeleted');
  /** Sessions that were opened, by whatever way; `afterCommit` only. */
  readonly loggedIn = this.#point<LoggedInEvent>('loggedIn');
  /** An access token is about to be renewed; `prepare` only, which may refuse. */
  readonly refreshing = this.#point<RefreshingEvent>('refreshing');
  readonly loggedOut = this.#point<LoggedOutEvent>('loggedOut');
  readonly deactivated = this.#point<DeactivatedEvent>('deactivated');
  /** Users were active; `afterCommit` only, and it must not take long. */
  readonly active = this.#point<ActiveEvent>('active');
  readonly reactivated = this.#point<{ readonly userId: string }>('reactivated');
  /** Data of a room is about to be stored: `inTransaction` only, before anything is written. */
  readonly roomDataChanging = this.#point<RoomDataChangingEvent>('roomDataChanging');
  readonly accountDataChanged = this.#point<AccountDataChangedEvent>('accountDataChanged');
  readonly threepidAdded = this.#point<ThreepidEvent>('threepidAdded');
  readonly threepidRemoved = this.#point<ThreepidEvent>('threepidRemoved');

  #point<Event>(name: string): HookPoint<Event> {
    return new HookPoint(name, (hook, err) =>
      this.logger.error('A hook failed after the change was made', { hook, err }),
    );
  }
}
