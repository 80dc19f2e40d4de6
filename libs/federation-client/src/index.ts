/** Requests to other servers, and their keys. */
export {
  destinationOrders,
  type DestinationRow,
  lastSuccessOf,
  writeSuccesses,
} from './destinations/destination.query.js';
export { Destinations, type RecoveryListener } from './destinations/destinations.js';
export { FederationClientModule } from './federation-client.module.js';
export { KeyRing } from './keys/key-ring.js';
export type { WantedKeys } from './keys/key-fetcher.js';
export { type OldKey, OwnKeys } from './signing/own-keys.js';
export { federationClientMigrations } from './migrations/federation-client-01.migration.js';
export { type Endpoint, NameResolver, type SrvRecord } from './network/name-resolver.js';
export { SystemNameResolver } from './network/system-name-resolver.js';
export {
  authorizationHeader,
  parseAuthorization,
  parseAuthorizations,
  type RequestCredentials,
  type RequestSignatures,
  signedRequestBytes,
  signedRequestText,
} from './signing/authorization.js';
export { FederationClient, type FederationRequest, type RequestOptions } from './requests/federation-client.js';
export { FederationMedia, type RemoteContent } from './requests/federation-media.js';
export { FederationRequestError } from './requests/federation-request-error.js';
export { federationPath } from './requests/request-path.js';
export type { RetryPlan } from './requests/retries.js';
export { ServerSoftware } from './server-software.js';
