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
export type { ProcessAddress } from './forwarding/fellow-connection.js';
export type { ForwardingOptions } from './forwarding/forwarder.js';
export { wantsPage } from './for-people.js';
export { HttpApp } from './http-app.js';
export { HeldBytes } from './held-bytes.js';
export { IpGuard } from './ip-guard.js';
export { FormBody, formOf, formSchemaOf, type InferForm } from './form-body.js';
export { bodySchemaOf, compileSchema, JsonBody, takesBody } from './json-body.js';
export { type Field, type Infer, json, type Schema } from './json-schema.js';
export { type JsonRules, parseJsonInSlices } from './json-text.js';
export { LeakyBucketRateLimiter } from './leaky-bucket-rate-limiter.js';
export { type BoundAddress, checkTls, ListenError } from './listeners.js';
export {
  OutboundError,
  type OutboundConnect,
  OutboundHttp,
  type OutboundRequest,
  type OutboundResponse,
  type OutboundStream,
} from './outbound-http.js';
export { networkOf } from './networks.js';
export { ownBaseUrl, ownPath, ownUrl, targetOnWire } from './own-address.js';
export { client, stable } from './paths.js';
export {
  type InferQuery,
  param,
  Query,
  queryOf,
  type QueryParam,
  type QuerySchema,
  querySchemaOf,
} from './query-schema.js';
export { jsonParts, WrittenList } from './json-parts.js';
export { HttpReply, type PageOptions } from './reply.js';
export { leadsElsewhere, proxiedBodyBytes, type ProxiedPaths, proxiedRoutes, RequestProxy } from './request-proxy.js';
export { type LimiterName, type RateLimit, RateLimiter, RateLimitOverrides } from './rate-limiter.js';
export { loadUndici, undici } from './undici.js';
export { type WebClient, WebMounts } from './web-mounts.js';
