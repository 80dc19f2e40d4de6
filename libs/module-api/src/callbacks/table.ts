import type { AccountDataCallbacks, AccountValidityCallbacks, PasswordAuthProviderCallbacks } from './accounts.js';
import type {
  BackgroundUpdateControllerCallbacks,
  FederationCallbacks,
  MediaRepositoryCallbacks,
  PresenceRouterCallbacks,
  RatelimitCallbacks,
  UnsignedFieldsCallbacks,
} from './server.js';
import type { SpamCheckerCallbacks } from './spam-checker.js';
import type { ThirdPartyRulesCallbacks } from './third-party-rules.js';

/** The callbacks of each category. */
export interface CallbackCategories {
  spamChecker: SpamCheckerCallbacks;
  thirdPartyRules: ThirdPartyRulesCallbacks;
  passwordAuthProvider: PasswordAuthProviderCallbacks;
  accountValidity: AccountValidityCallbacks;
  presenceRouter: PresenceRouterCallbacks;
  accountData: AccountDataCallbacks;
  unsignedFields: UnsignedFieldsCallbacks;
  mediaRepository: MediaRepositoryCallbacks;
  ratelimit: RatelimitCallbacks;
  federation: FederationCallbacks;
  backgroundUpdateController: BackgroundUpdateControllerCallbacks;
}

/** A group of callbacks that are registered together. */
export type CallbackCategory = keyof CallbackCategories;

/** Every callback with its signature. */
export type AllCallbacks = Required<
  SpamCheckerCallbacks &
    ThirdPartyRulesCallbacks &
    PasswordAuthProviderCallbacks &
    AccountValidityCallbacks &
    PresenceRouterCallbacks &
    AccountDataCallbacks &
    UnsignedFieldsCallbacks &
    MediaRepositoryCallbacks &
    RatelimitCallbacks &
    FederationCallbacks &
    BackgroundUpdateControllerCallbacks
>;

/** Name of a callback. */
export type CallbackName = keyof AllCallbacks;

/**
 * How several modules share a callback.
 *
 * - `gate`: asked in the order of the settings; the first refusal wins
 * - `transform`: each sees the result of the one before; a refusal ends it
 * - `provide`: the first answer wins
 * - `merge`: answers are united
 * - `notify`: all are told; a failure is logged and nothing else
 *
 * When a callback of the first three kinds fails, nothing is accepted and the request ends with 500 `M_UNKNOWN`, unless the
 * module's entry says `on_error: allow`. When one of the kind `merge` fails, the request goes on without the answers to this
 * question, or, with `on_error: allow`, without that module's.
 */
export type CallbackKind = 'gate' | 'transform' | 'provide' | 'merge' | 'notify';

/** One row of {@link callbackTable}. */
export interface CallbackInfo {
  readonly category: CallbackCategory;
  /** Name in the field's other module interfaces; `undefined` where it is ours alone. */
  readonly snakeCase: string | undefined;
  readonly kind: CallbackKind;
  /** Whether this version of the server calls it. */
  readonly fires: boolean;
  /** With several modules: `refuse` to start, or ask the `first` only. */
  readonly exclusive?: 'refuse' | 'first';
  /** What to use in its place. */
  readonly deprecated?: string;
}

/** Every callback as data: drives dispatch, the documentation and its tests. */
export const callbackTable = {
  checkEventForSpam: { category: 'spamChecker', snakeCase: 'check_event_for_spam', kind: 'gate', fires: true },
  shouldDropFederatedEvent: {
    category: 'spamChecker',
    snakeCase: 'should_drop_federated_event',
    kind: 'gate',
    fires: true,
  },
  userMayJoinRoom: { category: 'spamChecker', snakeCase: 'user_may_join_room', kind: 'gate', fires: true },
  userMayInvite: { category: 'spamChecker', snakeCase: 'user_may_invite', kind: 'gate', fires: true },
  federatedUserMayInvite: {
    category: 'spamChecker',
    snakeCase: 'federated_user_may_invite',
    kind: 'gate',
    fires: true,
  },
  userMaySend3pidInvite: {
    category: 'spamChecker',
    snakeCase: 'user_may_send_3pid_invite',
    kind: 'gate',
    fires: true,
  },
  userMayCreateRoom: { category: 'spamChecker', snakeCase: 'user_may_create_room', kind: 'gate', fires: true },
  userMayCreateRoomAlias: {
    category: 'spamChecker',
    snakeCase: 'user_may_create_room_alias',
    kind: 'gate',
    fires: true,
  },
  userMayPublishRoom: { category: 'spamChecker', snakeCase: 'user_may_publish_room', kind: 'gate', fires: true },
  userMaySendStateEvent: {
    category: 'spamChecker',
    snakeCase: 'user_may_send_state_event',
    kind: 'gate',
    fires: true,
  },
  checkUsernameForSpam: { category: 'spamChecker', snakeCase: 'check_username_for_spam', kind: 'gate', fires: true },
  checkRegistrationForSpam: {
    category: 'spamChecker',
    snakeCase: 'check_registration_for_spam',
    kind: 'gate',
    fires: true,
  },
  checkMediaFileForSpam: {
    category: 'spamChecker',
    snakeCase: 'check_media_file_for_spam',
    kind: 'gate',
    fires: true,
  },
  checkLoginForSpam: { category: 'spamChecker', snakeCase: 'check_login_for_spam', kind: 'gate', fires: true },

  checkEventAllowed: { category: 'thirdPartyRules', snakeCase: 'check_event_allowed', kind: 'transform', fires: true },
  onCreateRoom: { category: 'thirdPartyRules', snakeCase: 'on_create_room', kind: 'transform', fires: true },
  checkThreepidCanBeInvited: {
    category: 'thirdPartyRules',
    snakeCase: 'check_threepid_can_be_invited',
    kind: 'gate',
    fires: true,
  },
  checkVisibilityCanBeModified: {
    category: 'thirdPartyRules',
    snakeCase: 'check_visibility_can_be_modified',
    kind: 'gate',
    fires: true,
  },
  onNewEvent: { category: 'thirdPartyRules', snakeCase: 'on_new_event', kind: 'notify', fires: true },
  checkCanShutdownRoom: {
    category: 'thirdPartyRules',
    snakeCase: 'check_can_shutdown_room',
    kind: 'gate',
    fires: true,
  },
  checkCanRemoveHistory: { category: 'thirdPartyRules', snakeCase: undefined, kind: 'gate', fires: true },
  checkCanDeactivateUser: {
    category: 'thirdPartyRules',
    snakeCase: 'check_can_deactivate_user',
    kind: 'gate',
    fires: true,
  },
  onProfileUpdate: { category: 'thirdPartyRules', snakeCase: 'on_profile_update', kind: 'notify', fires: true },
  onUserDeactivationStatusChanged: {
    category: 'thirdPartyRules',
    snakeCase: 'on_user_deactivation_status_changed',
    kind: 'notify',
    fires: true,
  },
  onThreepidBind: {
    category: 'thirdPartyRules',
    snakeCase: 'on_threepid_bind',
    kind: 'notify',
    fires: true,
    deprecated: 'onAddUserThirdPartyIdentifier',
  },
  onAddUserThirdPartyIdentifier: {
    category: 'thirdPartyRules',
    snakeCase: 'on_add_user_third_party_identifier',
    kind: 'notify',
    fires: true,
  },
  onRemoveUserThirdPartyIdentifier: {
    category: 'thirdPartyRules',
    snakeCase: 'on_remove_user_third_party_identifier',
    kind: 'notify',
    fires: true,
  },
  onRoomUpgraded: { category: 'thirdPartyRules', snakeCase: undefined, kind: 'notify', fires: true },

  authCheckers: { category: 'passwordAuthProvider', snakeCase: 'auth_checkers', kind: 'provide', fires: true },
  check3pidAuth: { category: 'passwordAuthProvider', snakeCase: 'check_3pid_auth', kind: 'provide', fires: true },
  onLoggedOut: { category: 'passwordAuthProvider', snakeCase: 'on_logged_out', kind: 'notify', fires: true },
  getUsernameForRegistration: {
    category: 'passwordAuthProvider',
    snakeCase: 'get_username_for_registration',
    kind: 'provide',
    fires: true,
  },
  getDisplaynameForRegistration: {
    category: 'passwordAuthProvider',
    snakeCase: 'get_displayname_for_registration',
    kind: 'provide',
    fires: true,
  },
  is3pidAllowed: { category: 'passwordAuthProvider', snakeCase: 'is_3pid_allowed', kind: 'gate', fires: true },

  isUserExpired: { category: 'accountValidity', snakeCase: 'is_user_expired', kind: 'provide', fires: true },
  onUserRegistration: { category: 'accountValidity', snakeCase: 'on_user_registration', kind: 'notify', fires: true },
  onUserLogin: { category: 'accountValidity', snakeCase: 'on_user_login', kind: 'notify', fires: true },
  onLegacySendMail: {
    category: 'accountValidity',
    snakeCase: 'on_legacy_send_mail',
    kind: 'provide',
    fires: true,
    exclusive: 'refuse',
  },
  onLegacyRenew: {
    category: 'accountValidity',
    snakeCase: 'on_legacy_renew',
    kind: 'provide',
    fires: true,
    exclusive: 'refuse',
  },
  onLegacyAdminRequest: {
    category: 'accountValidity',
    snakeCase: 'on_legacy_admin_request',
    kind: 'provide',
    fires: true,
    exclusive: 'refuse',
  },

  getUsersForStates: { category: 'presenceRouter', snakeCase: 'get_users_for_states', kind: 'merge', fires: true },
  getInterestedUsers: { category: 'presenceRouter', snakeCase: 'get_interested_users', kind: 'merge', fires: true },

  onAccountDataUpdated: { category: 'accountData', snakeCase: 'on_account_data_updated', kind: 'notify', fires: true },

  addFieldToUnsigned: {
    category: 'unsignedFields',
    snakeCase: 'add_field_to_unsigned_callback',
    kind: 'merge',
    fires: true,
  },

  getMediaConfigForUser: {
    category: 'mediaRepository',
    snakeCase: 'get_media_config_for_user',
    kind: 'provide',
    fires: true,
  },
  isUserAllowedToUploadMediaOfSize: {
    category: 'mediaRepository',
    snakeCase: 'is_user_allowed_to_upload_media_of_size',
    kind: 'gate',
    fires: true,
  },
  getMediaUploadLimitsForUser: {
    category: 'mediaRepository',
    snakeCase: 'get_media_upload_limits_for_user',
    kind: 'provide',
    fires: true,
  },
  onMediaUploadLimitExceeded: {
    category: 'mediaRepository',
    snakeCase: 'on_media_upload_limit_exceeded',
    kind: 'notify',
    fires: true,
  },
  onMediaStored: { category: 'mediaRepository', snakeCase: undefined, kind: 'notify', fires: true },

  getRatelimitOverrideForUser: {
    category: 'ratelimit',
    snakeCase: 'get_ratelimit_override_for_user',
    kind: 'provide',
    fires: true,
  },

  onEventDeliveredOverFederation: {
    category: 'federation',
    snakeCase: 'on_event_delivered_over_federation',
    kind: 'notify',
    fires: true,
  },

  onUpdate: {
    category: 'backgroundUpdateController',
    snakeCase: 'on_update',
    kind: 'provide',
    fires: true,
    exclusive: 'first',
  },
  defaultBatchSize: {
    category: 'backgroundUpdateController',
    snakeCase: 'default_batch_size',
    kind: 'provide',
    fires: true,
    exclusive: 'first',
  },
  minBatchSize: {
    category: 'backgroundUpdateController',
    snakeCase: 'min_batch_size',
    kind: 'provide',
    fires: true,
    exclusive: 'first',
  },
} as const satisfies Record<CallbackName, CallbackInfo>;

/** Names of the callbacks of one kind. */
export type NamesOfKind<Kind extends CallbackKind> = {
  [Name in CallbackName]: (typeof callbackTable)[Name]['kind'] extends Kind ? Name : never;
}[CallbackName];

/** The methods of {@link ModuleApi} by which callbacks are registered, by category: for bridges to other ways of writing modules. */
export const registrationMethods = {
  spamChecker: 'registerSpamCheckerCallbacks',
  thirdPartyRules: 'registerThirdPartyRulesCallbacks',
  passwordAuthProvider: 'registerPasswordAuthProviderCallbacks',
  accountValidity: 'registerAccountValidityCallbacks',
  presenceRouter: 'registerPresenceRouterCallbacks',
  accountData: 'registerAccountDataCallbacks',
  unsignedFields: 'registerAddExtraFieldsToUnsignedClientEventCallbacks',
  mediaRepository: 'registerMediaRepositoryCallbacks',
  ratelimit: 'registerRatelimitCallbacks',
  federation: 'registerFederationCallbacks',
  backgroundUpdateController: 'registerBackgroundUpdateControllerCallbacks',
} as const satisfies Record<CallbackCategory, string>;
