/** Inbound endpoints and transactions, outbound queues. */
export { type EduHandler, type InboundEdu, InboundEdus } from './edus/inbound-edus.js';
export { FederationHttpModule } from './federation-http.module.js';
export { FederationModule } from './federation.module.js';
export { FederationSenderModule } from './federation-sender.module.js';
export { FederationAccess, type FederationAccessOptions, Origin, SignedContent } from './inbound/federation-access.js';
export { RequestVerifier, type VerifiedRequest } from './inbound/request-verifier.js';
export { federationMigrations } from './migrations/index.js';
export { FederationSender } from './sender/federation-sender.js';
export type { OutgoingEvent } from './sender/sender.query.js';
