/** Inbound endpoints and transactions, outbound queues. */
export { type EduHandler, type InboundEdu, InboundEdus } from './edus/inbound-edus.js';
export { FederationHttpModule } from './federation-http.module.js';
export { FederationModule } from './federation.module.js';
export { FederationAccess, type FederationAccessOptions, Origin, SignedContent } from './inbound/federation-access.js';
export { RequestVerifier, type VerifiedRequest } from './inbound/request-verifier.js';
export { federationMigrations } from './migrations/index.js';
