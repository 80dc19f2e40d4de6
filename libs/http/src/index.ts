/** Fastify set-up, guard, limits, error mapping, outbound client. */
export { Access, type AccessOptions, type InboundRequest, Inbound, RequestAuthenticator, Who } from './access.js';
export { compileSchema, FormBody, JsonBody, type JsonBodyOptions } from './json-body.js';
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
export { HttpReply } from './reply.js';
export { type LimiterName, type RateLimit, RateLimiter, RateLimitOverrides } from './rate-limiter.js';
