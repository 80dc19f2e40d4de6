/** Accounts, login, interactive auth, sessions, profiles. */
export {
  type AccountDataRow,
  allIgnorersOf,
  deleteAccountDataOfRoom,
  type RoomAccountDataRow,
} from './account-data/account-data.query.js';
export { AccountDataService } from './account-data/account-data.service.js';
export { FilterStore } from './account-data/filter-store.js';
export {
  type Account,
  accountsAfter,
  countAccounts,
  erasedUsers,
  existingAccounts,
  guestsAmong,
  hasAccounts,
  isErased,
} from './store/account.query.js';
export {
  accountOrders,
  lastSeenOf,
  listAccounts,
  type ListedAccount,
  searchAccounts,
} from './accounts/account-list.query.js';
export { AccountService } from './accounts/account.service.js';
export { AccountRenewal } from './accounts/account-renewal.service.js';
export { RenewalMails } from './accounts/renewal-mails.js';
export { AccountStatusService } from './accounts/account-status.service.js';
export { AccountValidity } from './accounts/account-validity.js';
export { ExternalIds } from './accounts/external-ids.js';
export { DeactivationService } from './accounts/deactivation.service.js';
export { PasswordService } from './accounts/password.service.js';
export {
  deleteRegistrationToken,
  findRegistrationToken,
  insertRegistrationToken,
  isUsable,
  listRegistrationTokens,
  type RegistrationToken,
  updateRegistrationToken,
} from './store/registration-token.query.js';
export { StoredRateLimitOverrides } from './accounts/rate-limit-overrides.js';
export { SsoRegistration } from './registration/sso-registration.service.js';
export type { Origin } from './common/account-modules.js';
export { isLocalUser, qualifyUserId } from './common/user-names.js';
export { ConsentService } from './consent/consent.service.js';
export { type Device, devicesOfUsers, providerLoginsOfDevice } from './store/device.query.js';
export { DeviceService } from './sessions/device.service.js';
export { ExperimentalFeatures, type UserFeature, userFeatures } from './experimental/experimental-features.js';
export { type ThreepidEvent, UserHooks } from './hooks.js';
export { usersMigrations } from './migrations/users-01.migration.js';
export { OpenIdService } from './openid/openid.service.js';
export { checkProfileField } from './profiles/profile-rules.js';
export type { Profile } from './common/profile.js';
export { ProfileService } from './profiles/profile.service.js';
export { type AppserviceSource, UserPorts } from './ports.js';
export { AppserviceDirectory } from './sessions/appservice-directory.js';
export { AuthenticationService } from './authentication/authentication-service.js';
export { ClientActivity } from './sessions/client-activity.js';
export {
  activeUsersByService,
  addressesOf,
  countActiveUsers,
  type UserAddress,
} from './sessions/client-activity.query.js';
export { LoginTokens } from './login/login-tokens.js';
export { type LoginFlow, LoginService } from './login/login.service.js';
export { isSessionHeld } from './sessions/token.query.js';
export { holdAccount } from './store/account-hold.query.js';
export { SessionService } from './sessions/session.service.js';
export { SessionWatch } from './authentication/session-watch.js';
export { canonicalAddress } from './threepids/addresses.js';
export { holdsAddress } from './threepids/threepid.query.js';
export { ThreepidService } from './threepids/threepid.service.js';
export { InteractiveAuthRequired } from './uia/uia-errors.js';
export { UiaService } from './uia/uia.service.js';
export { UserAuthGate } from './uia/user-auth-gate.js';
export { MonthlyActiveUsers } from './usage/monthly-active-users.service.js';
export { ParticipationGate } from './usage/participation-gate.js';
export { UsersHttpModule } from './users-http.module.js';
export { UsersModule } from './users.module.js';
export { forgetDailyVisits, noteDailyVisits, returningUsers, userFigures } from './usage/usage-figures.query.js';
