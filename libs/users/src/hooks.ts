import { Injectable } from '@nestjs/common';
import { HookPoint } from './common/hook-point.js';
import type { Profile } from './profiles/profile.js';

/** A new account. */
export interface RegisteredEvent {
  readonly userId: string;
  readonly isGuest: boolean;
  readonly appserviceId?: string | undefined;
  /** `support`, `bot`, or one of the server's own types. */
  readonly userType?: string | undefined;
  readonly byAdmin: boolean;
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

/** Devices of one user. */
export interface DevicesEvent {
  readonly userId: string;
  readonly deviceIds: readonly string[];
}

/** Tokens that no longer work. */
export interface LoggedOutEvent {
  readonly userId: string;
  /** Row ids of the access tokens; pushers made with them go. */
  readonly accessTokenIds: readonly number[];
  readonly deviceIds: readonly string[];
}

/** An account that was closed. */
export interface DeactivatedEvent {
  readonly userId: string;
  /** The user asked for their data to be forgotten. */
  readonly erase: boolean;
  readonly byAdmin: boolean;
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
  readonly registered = new HookPoint<RegisteredEvent>('registered');
  /** A profile is about to be shown; `prepare` may refuse (users who share no room). */
  readonly profileLookUp = new HookPoint<ProfileLookUpEvent>('profileLookUp');
  readonly profileChanged = new HookPoint<ProfileChangedEvent>('profileChanged');
  /** Devices that are new or renamed. */
  readonly devicesChanged = new HookPoint<DevicesEvent>('devicesChanged');
  readonly devicesDeleted = new HookPoint<DevicesEvent>('devicesDeleted');
  readonly loggedOut = new HookPoint<LoggedOutEvent>('loggedOut');
  readonly deactivated = new HookPoint<DeactivatedEvent>('deactivated');
  readonly reactivated = new HookPoint<{ readonly userId: string }>('reactivated');
  readonly accountDataChanged = new HookPoint<AccountDataChangedEvent>('accountDataChanged');
  readonly threepidAdded = new HookPoint<ThreepidEvent>('threepidAdded');
  readonly threepidRemoved = new HookPoint<ThreepidEvent>('threepidRemoved');
}
