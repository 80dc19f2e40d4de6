/** Single sign-on: OIDC, SAML, CAS. */
export { ssoMigrations } from './common/sso-session.query.js';
export { SsoPorts } from './ports.js';
export { SsoHandover } from './login/handover.service.js';
export { SsoHttpModule } from './sso-http.module.js';
export { SsoModule } from './sso.module.js';
