import type { CallbackCategories } from '../callbacks/table.js';
import type { IdentityProvider } from '../identity-provider.js';
import type { MediaServerSettings, MediaStorageProvider } from '../media.js';
import type { OidcMappingProvider, SamlMappingProvider } from '../mapping.js';

/** What a handler of a web resource knows beside the request. */
export interface WebRequestContext {
  /** Id of the request, the one in the server's log. */
  readonly requestId: string | undefined;
  readonly ip: string | undefined;
  readonly userAgent: string | undefined;
  /** What the path's parameters stood for: `/users/:name` gives `name`. */
  readonly params: Readonly<Record<string, string>>;
}

/**
 * Answers a request to a path of the module. Bodies larger than 12.5 MiB never reach it. An answer begins within a minute, ends
 * within five, and holds at most 100 MiB; it goes out as a whole.
 */
export type WebHandler = (request: Request, context: WebRequestContext) => Promise<Response> | Response;

/**
 * Registering what the module implements. Only while `register` runs; afterwards these throw. The callbacks of one category
 * may be given in several calls, each callback once.
 */
export interface RegistrationApi {
  /** Checks that refuse what users and other servers do. */
  registerSpamCheckerCallbacks(callbacks: CallbackCategories['spamChecker']): void;
  /** Rules for rooms and accounts, and being told when they change. */
  registerThirdPartyRulesCallbacks(callbacks: CallbackCategories['thirdPartyRules']): void;
  /** Other ways to log in. */
  registerPasswordAuthProviderCallbacks(callbacks: CallbackCategories['passwordAuthProvider']): void;
  /** Accounts that run out. */
  registerAccountValidityCallbacks(callbacks: CallbackCategories['accountValidity']): void;
  /** Presence for users who share no room. Both callbacks or neither. */
  registerPresenceRouterCallbacks(callbacks: CallbackCategories['presenceRouter']): void;
  /** Being told of account data. */
  registerAccountDataCallbacks(callbacks: CallbackCategories['accountData']): void;
  /** More fields in the `unsigned` part of events. */
  registerAddExtraFieldsToUnsignedClientEventCallbacks(callbacks: CallbackCategories['unsignedFields']): void;
  /** Limits of the media repository. */
  registerMediaRepositoryCallbacks(callbacks: CallbackCategories['mediaRepository']): void;
  /** Rate limits by user. */
  registerRatelimitCallbacks(callbacks: CallbackCategories['ratelimit']): void;
  /** Being told of what becomes of events at other servers. */
  registerFederationCallbacks(callbacks: CallbackCategories['federation']): void;
  /** When background updates run. The first module that registers them is the only one asked. */
  registerBackgroundUpdateControllerCallbacks(callbacks: CallbackCategories['backgroundUpdateController']): void;
  /**
   * Answers requests to a path.
   * @param path best below `/_synapse/client/` (where the service prefix is set otherwise, that is put in place of
   *   `_synapse`); what belongs to the server, such as `/_matrix`, is not allowed. Segments but the first may be parameters
   *   (`:name`); a last `*` takes the rest. When two modules claim a path, the first has it and the second is named in the log.
   */
  registerWebResource(path: string, handler: WebHandler): void;
  /** A place where people sign on, whole: clients list it beside those of the settings. As many as the module likes. */
  registerIdentityProvider(provider: IdentityProvider): void;
  /**
   * Another place for media, under the name that the settings' `media_storage_providers` refer to.
   * @param create is called once for each entry there, with the entry's `config` and what else the settings say of media
   */
  registerMediaStorageProvider(
    name: string,
    create: (config: unknown, server: MediaServerSettings) => MediaStorageProvider,
  ): void;
  /** Maps OpenID Connect users to accounts, under the name that the settings' `user_mapping_provider` refers to. */
  registerOidcMappingProvider(name: string, create: (config: unknown) => OidcMappingProvider): void;
  /** Maps SAML users to accounts, likewise. */
  registerSamlMappingProvider(name: string, create: (config: unknown) => SamlMappingProvider): void;
}
