import type { CallbackContext } from '../context.js';
import type { FederatedEventDelivery } from '../federation.js';
import type { ModuleEvent } from '../event.js';
import type { MediaFileInfo, MediaUploadLimit } from '../media.js';
import type { Permission, PRESENCE_ALL_USERS } from '../verdicts.js';

/** A user's presence. */
export interface UserPresenceState {
  readonly userId: string;
  /** `online`, `unavailable`, `offline` or `busy`. */
  readonly state: string;
  readonly lastActiveTs: number;
  readonly lastFederationUpdateTs: number;
  readonly lastUserSyncTs: number;
  readonly statusMsg: string | undefined;
  readonly currentlyActive: boolean;
}

/** Sends presence to users who share no room. Both callbacks or neither. */
export interface PresenceRouterCallbacks {
  /**
   * `get_users_for_states`: who, beyond the usual, gets these updates, users of other servers included. Answers of several modules are
   * united.
   */
  getUsersForStates?(
    stateUpdates: readonly UserPresenceState[],
    context: CallbackContext,
  ): Promise<ReadonlyMap<string, Iterable<UserPresenceState>>> | ReadonlyMap<string, Iterable<UserPresenceState>>;
  /** `get_interested_users`: whose presence, beyond the usual, this user gets. */
  getInterestedUsers?(
    userId: string,
    context: CallbackContext,
  ): Promise<Iterable<string> | typeof PRESENCE_ALL_USERS> | Iterable<string> | typeof PRESENCE_ALL_USERS;
}

/** More fields in the `unsigned` part of events that clients get. */
export interface UnsignedFieldsCallbacks {
  /**
   * `add_field_to_unsigned_callback`: asked whenever an event is prepared for a client: be quick. Fields of the server
   * itself cannot be replaced; of several modules the later one wins.
   */
  addFieldToUnsigned?(
    event: ModuleEvent,
    context: CallbackContext,
  ): Promise<Readonly<Record<string, unknown>>> | Readonly<Record<string, unknown>>;
}

/** Limits of the media repository. */
export interface MediaRepositoryCallbacks {
  /** `get_media_config_for_user`: the answer to a request for the media configuration; nothing for the usual one. */
  getMediaConfigForUser?(
    userId: string,
    context: CallbackContext,
  ): Promise<Readonly<Record<string, unknown>> | undefined> | Readonly<Record<string, unknown>> | undefined;
  /** `is_user_allowed_to_upload_media_of_size`: `false` answers 413 `M_TOO_LARGE`. */
  isUserAllowedToUploadMediaOfSize?(
    userId: string,
    sizeBytes: number,
    context: CallbackContext,
  ): Promise<Permission> | Permission;
  /** `get_media_upload_limits_for_user`: in place of the settings' limits; an empty list for none. */
  getMediaUploadLimitsForUser?(
    userId: string,
    context: CallbackContext,
  ): Promise<readonly MediaUploadLimit[] | undefined> | readonly MediaUploadLimit[] | undefined;
  /** `on_media_upload_limit_exceeded`: an upload was refused. */
  onMediaUploadLimitExceeded?(
    userId: string,
    limit: MediaUploadLimit,
    sentBytes: number,
    attemptedBytes: number,
    context: CallbackContext,
  ): Promise<void> | void;
  /** A file was stored: uploaded, or fetched from another server. Ours; no counterpart elsewhere. */
  onMediaStored?(
    fileInfo: MediaFileInfo,
    uploader: string | undefined,
    sizeBytes: number,
    context: CallbackContext,
  ): Promise<void> | void;
}

/** Numbers of a rate limiter for one user. */
export interface RatelimitOverride {
  /** Actions per second; 0 switches the limiter off. */
  readonly perSecond: number;
  readonly burstCount: number;
}

/** Rate limits by user. */
export interface RatelimitCallbacks {
  /** `get_ratelimit_override_for_user`: asked for the limiters `rc_invites.per_room`, `.per_user` and `.per_issuer`. */
  getRatelimitOverrideForUser?(
    userId: string,
    limiterName: string,
    context: CallbackContext,
  ): Promise<RatelimitOverride | undefined> | RatelimitOverride | undefined;
}

/** What becomes of events at other servers. */
export interface FederationCallbacks {
  /**
   * `on_event_delivered_over_federation`: events reached another server, or were handed out to it. One request may be told of
   * in several calls.
   */
  onEventDeliveredOverFederation?(delivery: FederatedEventDelivery, context: CallbackContext): Promise<void> | void;
}

/** Leave to run one batch of a background update. */
export interface UpdateSlot {
  /** How long the batch should take. Ignored for one-shot updates. */
  readonly durationMs: number;
  /** Called when the batch has ended, well or not. */
  readonly release?: () => Promise<void> | void;
}

/** Decides when background updates run. The first module that registers these callbacks is the only one asked. */
export interface BackgroundUpdateControllerCallbacks {
  /**
   * `on_update`: a batch wants to start; wait in here to hold it back. Required. Neither a stop of the server nor a reload waits for the
   * answer: whoever decides then is asked anew, and what is answered late is released at once.
   * @param databaseName `state` for what runs on the database with the rows of state, where that is one of its own; else `master`
   */
  onUpdate?(
    updateName: string,
    databaseName: string,
    oneShot: boolean,
    context: CallbackContext,
  ): Promise<UpdateSlot> | UpdateSlot;
  /** `default_batch_size`: rows in the first batch. */
  defaultBatchSize?(updateName: string, databaseName: string, context: CallbackContext): Promise<number> | number;
  /** `min_batch_size`: rows that a batch has at least. */
  minBatchSize?(updateName: string, databaseName: string, context: CallbackContext): Promise<number> | number;
}
