import type { CallbackContext } from '../context.js';
import type { ModuleEvent, ModuleEventDraft, RoomStateView } from '../event.js';
import type { Permission, Refusal } from '../verdicts.js';

/** What of an event a module may replace before it is made final. */
export interface EventReplacement {
  readonly content: Readonly<Record<string, unknown>>;
}

/** Answer of `checkEventAllowed`. A replacement of an event from another server is an error: it is signed already. */
export type EventAllowed =
  | boolean
  | { readonly allowed: true; readonly replacement?: EventReplacement }
  | ({ readonly allowed: false } & Refusal);

/** Name and avatar that a user shows to everybody. */
export interface ProfileInfo {
  readonly displayName: string | undefined;
  readonly avatarUrl: string | undefined;
}

/** Who makes a request. */
export interface ModuleRequester {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly isAdmin: boolean;
  readonly shadowBanned: boolean;
  readonly appserviceId: string | undefined;
}

/**
 * Why something is removed: an administrator purges (`purge`), the room's messages have lived long enough (`retention`), a redaction
 * becomes final (`redaction`), a message destroys itself (`expiry`), everybody has forgotten the room (`forgotten`).
 */
export type HistoryRemovalReason = 'purge' | 'retention' | 'redaction' | 'expiry' | 'forgotten';

/** Rules for rooms and accounts beyond those of the protocol, and being told when they change. */
export interface ThirdPartyRulesCallbacks {
  /**
   * `check_event_allowed`: asked for every event, local or not, with the room's state before it; for what another module sends, too
   * (`context.source` is `module`), but not for what this one does. May refuse; may replace the content of a local event, which is still without id, hash and signature.
   * The next module sees the replacement. All reads of one call see one and the same state, whatever happens in the room
   * meanwhile.
   */
  checkEventAllowed?(
    event: ModuleEventDraft,
    stateEvents: RoomStateView,
    context: CallbackContext,
  ): Promise<EventAllowed> | EventAllowed;
  /**
   * `on_create_room`: a room is about to be created or upgraded, by a user or by another module. Returns a replacement for the request's body, or nothing
   * to leave it; throws a `MatrixError` to refuse.
   */
  onCreateRoom?(
    requester: ModuleRequester,
    requestContent: Readonly<Record<string, unknown>>,
    isRequesterAdmin: boolean,
    context: CallbackContext,
  ): Promise<Readonly<Record<string, unknown>> | void> | Readonly<Record<string, unknown>> | void;
  /** `check_threepid_can_be_invited`: an address is about to be invited by the identity server. */
  checkThreepidCanBeInvited?(
    medium: string,
    address: string,
    stateEvents: RoomStateView,
    context: CallbackContext,
  ): Promise<Permission> | Permission;
  /**
   * `check_visibility_can_be_modified`: a room is about to enter or leave the public directory. Not asked of one that is public from the
   * start (`userMayPublishRoom`), nor of one that takes the place of another there.
   */
  checkVisibilityCanBeModified?(
    roomId: string,
    stateEvents: RoomStateView,
    newVisibility: 'public' | 'private',
    context: CallbackContext,
  ): Promise<Permission> | Permission;
  /**
   * `on_new_event`: an event was stored; told once per event on the whole server, again only after a crash. Not told of
   * rejected events. `stateEvents` is the state after it. Invites from rooms that this server is not in are among them, and what
   * ends these: of such a room no state is known.
   */
  onNewEvent?(event: ModuleEvent, stateEvents: RoomStateView, context: CallbackContext): Promise<void> | void;
  /** `check_can_shutdown_room`: an administrator deletes a room. `userId` is `undefined` when a job does it. */
  checkCanShutdownRoom?(
    userId: string | undefined,
    roomId: string,
    context: CallbackContext,
  ): Promise<Permission> | Permission;
  /**
   * What was said in a room is about to be removed from the database for good; `false` keeps it, and what is due is due again later. Not
   * asked when a whole room is deleted, which is `checkCanShutdownRoom`. Media are not part of it. Ours; no counterpart elsewhere.
   */
  checkCanRemoveHistory?(
    roomId: string,
    reason: HistoryRemovalReason,
    context: CallbackContext,
  ): Promise<Permission> | Permission;
  /** `check_can_deactivate_user`: an account is about to be deactivated. */
  checkCanDeactivateUser?(userId: string, byAdmin: boolean, context: CallbackContext): Promise<Permission> | Permission;
  /**
   * `on_profile_update`: a global profile changed, whichever field of it. Not told at registration; single sign-on counts as `byAdmin`.
   */
  onProfileUpdate?(
    userId: string,
    newProfile: ProfileInfo,
    byAdmin: boolean,
    deactivation: boolean,
    context: CallbackContext,
  ): Promise<void> | void;
  /** `on_user_deactivation_status_changed`: an account was deactivated or reactivated. */
  onUserDeactivationStatusChanged?(
    userId: string,
    deactivated: boolean,
    byAdmin: boolean,
    context: CallbackContext,
  ): Promise<void> | void;
  /**
   * `on_threepid_bind`: told together with `onAddUserThirdPartyIdentifier`.
   * @deprecated use `onAddUserThirdPartyIdentifier`, which has the same arguments
   */
  onThreepidBind?(userId: string, medium: string, address: string, context: CallbackContext): Promise<void> | void;
  /** `on_add_user_third_party_identifier`: an address was added to a local account. */
  onAddUserThirdPartyIdentifier?(
    userId: string,
    medium: string,
    address: string,
    context: CallbackContext,
  ): Promise<void> | void;
  /** `on_remove_user_third_party_identifier`: an address was removed from a local account. */
  onRemoveUserThirdPartyIdentifier?(
    userId: string,
    medium: string,
    address: string,
    context: CallbackContext,
  ): Promise<void> | void;
  /** A room was replaced by a new one. Ours; no counterpart elsewhere. */
  onRoomUpgraded?(oldRoomId: string, newRoomId: string, userId: string, context: CallbackContext): Promise<void> | void;
}
