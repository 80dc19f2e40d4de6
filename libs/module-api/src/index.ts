/** What a Rookery module may implement and call. */
export {
  domainOf,
  isValidEventId,
  isValidRoomAlias,
  isValidRoomId,
  isValidServerName,
  isValidUserId,
  localpartOf,
  MatrixError,
} from '@rookery/matrix-types';
export {
  type AdminField,
  type AdminFieldValue,
  type AdminForm,
  type AdminPage,
  type AdminPageContext,
  adminPagesPath,
  type AdminSection,
  registerAdminPage,
} from './admin-page.js';
export type { AccountApi, AccountDataManager, RegisteredDevice, UserInfo, UserIpAndAgent } from './api/accounts.js';
export type { BackgroundApi, MessagingApi, ModuleApi, PresenceToSet } from './api/module-api.js';
export type { RegistrationApi, WebHandler, WebRequestContext } from './api/registration.js';
export type { EventToSend, PublicRoomListManager, RoomApi, RoomInfo } from './api/rooms.js';
export type {
  DocumentStore,
  FederationClientApi,
  HttpAnswer,
  HttpClient,
  HttpRequestOptions,
  ModuleLog,
  ModuleMessages,
  ModuleMetrics,
  ModuleMigration,
  ModuleStore,
  ModuleTemplate,
  ModuleTransaction,
  ScheduledCall,
  Scheduler,
  StoredDocument,
} from './api/services.js';
export type {
  AccountDataCallbacks,
  AccountValidityCallbacks,
  AuthChecker,
  AuthSuccess,
  PasswordAuthProviderCallbacks,
  RenewalResult,
  UiaResults,
} from './callbacks/accounts.js';
export type {
  BackgroundUpdateControllerCallbacks,
  FederationCallbacks,
  MediaRepositoryCallbacks,
  PresenceRouterCallbacks,
  RatelimitCallbacks,
  RatelimitOverride,
  UnsignedFieldsCallbacks,
  UpdateSlot,
  UserPresenceState,
} from './callbacks/server.js';
export type { RequestInfo, SpamCheckerCallbacks, Threepid, UserProfile } from './callbacks/spam-checker.js';
export {
  type AllCallbacks,
  type CallbackCategories,
  type CallbackCategory,
  type CallbackInfo,
  type CallbackKind,
  type CallbackName,
  callbackTable,
  registrationMethods,
  type NamesOfKind,
} from './callbacks/table.js';
export type { FederatedEventDelivery, FederatedEventDeliveryMethod } from './federation.js';
export type {
  EventAllowed,
  EventReplacement,
  HistoryRemovalReason,
  ModuleRequester,
  ProfileInfo,
  ThirdPartyRulesCallbacks,
} from './callbacks/third-party-rules.js';
export type { CallbackContext } from './context.js';
export { ConfigError } from './errors.js';
export { contentOf, type EventContents, typesWithContent } from './event-contents/event-contents.js';
export type {
  IdentityProvider,
  ProviderLogout,
  SignedOn,
  SignOnCallback,
  SignOnContext,
  SignOnProfile,
  SignOnStep,
} from './identity-provider.js';
export type { ModuleEvent, ModuleEventDraft, RoomStateView, StateFilter } from './event.js';
export {
  mapUsernameToMxidLocalpart,
  type OidcMappingProvider,
  type OidcUserAttributes,
  RedirectError,
  type SamlMappingProvider,
  type SamlResponse,
  type SamlUserAttributes,
} from './mapping.js';
export type {
  MediaDownloadHeaders,
  MediaFile,
  MediaFileInfo,
  MediaServerSettings,
  MediaStorageProvider,
  MediaUploadLimit,
  ThumbnailInfo,
} from './media.js';
export {
  defineModule,
  isRookeryModule,
  MODULE_API_VERSION,
  type ModuleDefinition,
  type RookeryModule,
} from './module.js';
export { SafePattern } from './safe-pattern.js';
export type { SchemaIssue, StandardSchema } from './schema.js';
export {
  Codes,
  DROP_SILENTLY,
  type EventVerdict,
  NOT_SPAM,
  type Permission,
  PRESENCE_ALL_USERS,
  type Refusal,
  type RegistrationBehavior,
  SOFT_FAIL,
  type SpamVerdict,
} from './verdicts.js';
