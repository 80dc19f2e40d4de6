import type { CallbackContext } from '../context.js';
import type { ModuleEvent } from '../event.js';
import type { MediaFile, MediaFileInfo } from '../media.js';
import type { EventVerdict, RegistrationBehavior, SpamVerdict } from '../verdicts.js';

/** A user as the user directory shows it. */
export interface UserProfile {
  readonly userId: string;
  readonly displayName: string | undefined;
  readonly avatarUrl: string | undefined;
}

/** Where a registration or login came from; more than one when several requests made it up. */
export interface RequestInfo {
  readonly userAgent: string | undefined;
  readonly ip: string;
}

/** An address outside Matrix that stands for a person. */
export interface Threepid {
  /** `email` or `msisdn`. */
  readonly medium: string;
  readonly address: string;
}

/** Checks that refuse what users and other servers do. The first refusal, in the order of the settings, wins. */
export interface SpamCheckerCallbacks {
  /**
   * `check_event_for_spam`: an event is about to be accepted. Refusing rejects the request of a local client and soft-fails
   * an event from another server.
   */
  checkEventForSpam?(event: ModuleEvent, context: CallbackContext): Promise<EventVerdict> | EventVerdict;
  /**
   * `should_drop_federated_event`: an event or invite arrived from another server. `true` or a text, which is logged,
   * drops it as if it had never arrived. Dropping events that others refer to makes rooms fall apart; refusing with
   * `checkEventForSpam` is safer.
   */
  shouldDropFederatedEvent?(event: ModuleEvent, context: CallbackContext): Promise<boolean | string> | boolean | string;
  /** `user_may_join_room`: a local user joins. Not asked for administrators and for joining one's own new room. */
  userMayJoinRoom?(
    userId: string,
    roomId: string,
    isInvited: boolean,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /** `user_may_invite`: somebody, local or not, invites somebody. `roomId` is empty for the invites that a new room is made with. */
  userMayInvite?(
    inviter: string,
    invitee: string,
    roomId: string,
    context: CallbackContext,
  ): Promise<EventVerdict> | EventVerdict;
  /** `federated_user_may_invite`: an invite from another server; asked before `userMayInvite`. */
  federatedUserMayInvite?(event: ModuleEvent, context: CallbackContext): Promise<EventVerdict> | EventVerdict;
  /** `user_may_send_3pid_invite`: an invite to an address that belongs to no known user. */
  userMaySend3pidInvite?(
    inviter: string,
    medium: string,
    address: string,
    roomId: string,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /** `user_may_create_room`: a room is about to be created or upgraded. `roomConfig` is the body of the request. */
  userMayCreateRoom?(
    userId: string,
    roomConfig: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /**
   * `user_may_create_room_alias`: a user, or an administrator, binds an alias, for example `#cats:example.org`. Not asked for users of
   * application services.
   */
  userMayCreateRoomAlias?(
    userId: string,
    roomAlias: string,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /**
   * `user_may_publish_room`: a user adds a room to the public directory. One that is to be public from the start is made all
   * the same, unlisted; `roomId` is empty then where the id of a room follows from its first event (room version 12).
   */
  userMayPublishRoom?(userId: string, roomId: string, context: CallbackContext): Promise<SpamVerdict> | SpamVerdict;
  /** `user_may_send_state_event`: a local client sends a state event by the state endpoint. */
  userMaySendStateEvent?(
    userId: string,
    roomId: string,
    eventType: string,
    stateKey: string,
    content: Readonly<Record<string, unknown>>,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /** `check_username_for_spam`: a user was found in the user directory; `true` hides it from `requesterId`. */
  checkUsernameForSpam?(
    userProfile: UserProfile,
    requesterId: string,
    context: CallbackContext,
  ): Promise<boolean> | boolean;
  /** `check_registration_for_spam`: an account is about to be made. The first answer other than `allow` wins. */
  checkRegistrationForSpam?(
    emailThreepid: Threepid | undefined,
    username: string | undefined,
    requestInfo: readonly RequestInfo[],
    authProviderId: string | undefined,
    context: CallbackContext,
  ): Promise<RegistrationBehavior> | RegistrationBehavior;
  /** `check_media_file_for_spam`: a file, local or fetched from another server, is about to be stored. */
  checkMediaFileForSpam?(
    file: MediaFile,
    fileInfo: MediaFileInfo,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
  /** `check_login_for_spam`: a user proved who they are and is about to get a device. Not asked at registration. */
  checkLoginForSpam?(
    userId: string,
    deviceId: string | undefined,
    initialDisplayName: string | undefined,
    requestInfo: readonly RequestInfo[],
    authProviderId: string | undefined,
    context: CallbackContext,
  ): Promise<SpamVerdict> | SpamVerdict;
}
