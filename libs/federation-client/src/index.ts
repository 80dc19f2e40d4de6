/** Requests to other servers, and their keys. */
export {
  destinationOrders,
  type DestinationRow,
  type DestinationSearch,
  lastSuccessOf,
  writeSuccesses,
} from './destinations/destination.query.js';
export { Destinations, type DestinationState, type RecoveryListener } from './destinations/destinations.js';
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
  type RequestCredentials,
  signedRequestBytes,
  signedRequestText,
  type SignedRequestParts,
} from './signing/authorization.js';
export {
  FederationClient,
  type FederationRequest,
  type FederationResponse,
  type FederationStream,
  type RequestOptions,
} from './requests/federation-client.js';
export {
  FederationMedia,
  type MediaRequest,
  type RemoteContent,
  type ThumbnailSize,
} from './requests/federation-media.js';
export { type FederationFailure, FederationRequestError } from './requests/federation-request-error.js';
export { federationPath, type RequestQuery } from './requests/request-path.js';
export type { RetryPlan } from './requests/retries.js';
export { ServerSoftware } from './server-software.js';
