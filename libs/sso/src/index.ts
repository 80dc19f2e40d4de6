/** Single sign-on: OIDC, SAML, CAS. */
export { ssoMigrations } from './common/sso-session.query.js';
export { Avatars, type Picture, type PictureStore } from './login/avatars.service.js';
export { type Handover, SsoHandover } from './login/handover.service.js';
export type { IdentityProvider, SsoPurpose } from './providers/identity-provider.js';
export { IdentityProviders } from './providers/identity-providers.js';
export { SsoHttpModule } from './sso-http.module.js';
export { SsoModule } from './sso.module.js';
