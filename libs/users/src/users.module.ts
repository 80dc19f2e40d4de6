import { Module } from '@nestjs/common';
import { RequestAuthenticator } from '@rookery/http';
import { AccountDataService } from './account-data/account-data.service.js';
import { FilterStore } from './account-data/filter-store.js';
import { AccountRenewal } from './accounts/account-renewal.service.js';
import { AccountService } from './accounts/account.service.js';
import { AccountStatusService } from './accounts/account-status.service.js';
import { AccountValidity } from './accounts/account-validity.js';
import { AdminRegistrationService } from './accounts/admin-registration.service.js';
import { DeactivationService } from './accounts/deactivation.service.js';
import { PasswordReset } from './accounts/password-reset.service.js';
import { PasswordService } from './accounts/password.service.js';
import { RegistrationFlows } from './accounts/registration-flows.js';
import { RegistrationService } from './accounts/registration.service.js';
import { SsoRegistration } from './accounts/sso-registration.service.js';
import { AccountModules } from './common/account-modules.js';
import { ExpiredRows } from './common/expired-rows.js';
import { ConsentService } from './consent/consent.service.js';
import { DeviceService } from './devices/device.service.js';
import { ExperimentalFeatures } from './experimental/experimental-features.js';
import { UserHooks } from './hooks.js';
import { OpenIdService } from './openid/openid.service.js';
import { ProfileService } from './profiles/profile.service.js';
import { RemoteProfiles } from './profiles/remote-profiles.js';
import { AppserviceDirectory } from './sessions/appservice-directory.js';
import { AuthenticationService } from './sessions/authentication-service.js';
import { ClientActivity } from './sessions/client-activity.js';
import { LoginProofs } from './sessions/login-proofs.js';
import { LoginService } from './sessions/login.service.js';
import { LoginTokens } from './sessions/login-tokens.js';
import { PasswordLogin } from './sessions/password-login.js';
import { UserRequestAuthenticator } from './sessions/request-authenticator.js';
import { SessionService } from './sessions/session.service.js';
import { SessionWatch } from './sessions/session-watch.js';
import { AccountCache, TokenCache } from './sessions/user-cache.js';
import { AccountMailer } from './threepids/account-mailer.js';
import { EmailVerification } from './threepids/email-verification.service.js';
import { IdentityServer } from './threepids/identity-server.js';
import { MsisdnVerification } from './threepids/msisdn-verification.service.js';
import { RequestTokenService } from './threepids/request-token.service.js';
import { ThreepidService } from './threepids/threepid.service.js';
import { CaptchaVerifier } from './uia/captcha-verifier.js';
import { UiaStages } from './uia/uia-stages.js';
import { UiaService } from './uia/uia.service.js';
import { UserAuthGate } from './uia/user-auth-gate.js';
import { MonthlyActiveUsers } from './usage/monthly-active-users.service.js';
import { ParticipationGate } from './usage/participation-gate.js';

const face = [
  AccountDataService,
  FilterStore,
  AccountRenewal,
  AccountService,
  AccountStatusService,
  AccountValidity,
  AppserviceDirectory,
  AuthenticationService,
  ClientActivity,
  ConsentService,
  DeactivationService,
  DeviceService,
  ExperimentalFeatures,
  LoginService,
  MonthlyActiveUsers,
  ParticipationGate,
  OpenIdService,
  PasswordService,
  ProfileService,
  RegistrationFlows,
  RegistrationService,
  RemoteProfiles,
  SessionService,
  SessionWatch,
  SsoRegistration,
  ThreepidService,
  UiaService,
  UserAuthGate,
  UserHooks,
  AccountModules,
  PasswordReset,
  AdminRegistrationService,
  EmailVerification,
  IdentityServer,
  MsisdnVerification,
  RequestTokenService,
];

/**
 * Accounts, sessions, profiles and what belongs to them; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`,
 * `Logger`, `RateLimiter`, `Notifier`, `OutboundHttp` and `ModuleDispatcher` from the app's global modules.
 */
@Module({
  providers: [
    ...face,
    CaptchaVerifier,
    ExpiredRows,
    AccountMailer,
    LoginProofs,
    LoginTokens,
    PasswordLogin,
    AccountCache,
    TokenCache,
    UiaStages,
    UserRequestAuthenticator,
    { provide: RequestAuthenticator, useExisting: UserRequestAuthenticator },
  ],
  exports: [...face, RequestAuthenticator],
})
export class UsersModule {}
