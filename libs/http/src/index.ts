/** Fastify set-up, guard, limits, error mapping, outbound client. */
export {
  Access,
  type AccessOptions,
  type InboundRequest,
  Inbound,
  type LateRequest,
  RequestAuthenticator,
  Who,
} from './access.js';
export { federationGuardOf, httpSettingsOf, outboundOptionsOf, rateLimitsOf } from './from-config.js';
export { wantsPage } from './for-people.js';
export { HttpApp, type HttpAppOptions } from './http-app.js';
export { IpGuard } from './ip-guard.js';
export { compileSchema, FormBody, JsonBody, type JsonBodyOptions } from './json-body.js';
export { type JsonRules, parseJsonInSlices } from './json-text.js';
export { LeakyBucketRateLimiter } from './leaky-bucket-rate-limiter.js';
export { type BoundAddress, checkTls, ListenError, type ListenerSettings, type TlsFiles } from './listeners.js';
export {
  OutboundError,
  type OutboundFailure,
  OutboundHttp,
  type OutboundOptions,
  type OutboundRequest,
  type OutboundResponse,
  type OutboundStream,
} from './outbound-http.js';
export { networkOf } from './networks.js';
export { ownBaseUrl, ownPath, ownUrl } from './own-address.js';
export { client, type ClientVersion, stable } from './paths.js';
export {
  type IntegerBounds,
  queryBoolean,
  queryChoice,
  queryInteger,
  queryString,
  queryStrings,
  requiredQueryString,
} from './query-params.js';
export { HttpReply, type PageContent, type PageOptions } from './reply.js';
export { type LimiterName, type RateLimit, RateLimiter, RateLimitOverrides } from './rate-limiter.js';
export type { PathPrefixes } from './request-handler.js';
export type { WebClient, WebHandler } from './web-mounts.js';
export { undici } from './undici.js';
