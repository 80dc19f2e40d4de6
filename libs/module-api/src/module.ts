import type { ModuleApi } from './api/module-api.js';
import { ConfigError } from './errors.js';
import { checkedBySchema, jsonSchemaOf, type StandardSchema } from './schema.js';

/**
 * Version of the interface between modules and the server. The first number grows with changes that can break a module, the
 * second with additions. A server loads a module whose first number is its own; where the
 * second is larger than its own, it warns of what may be missing.
 */
export const MODULE_API_VERSION = '1.0';

/** A module as its author writes it. */
export interface ModuleDefinition<Config> {
  /**
   * Names the module in logs, metrics, its store and its schedule. 1 to 64 characters of `a-z 0-9 . _ -`, a letter or a
   * digit first; unique on a server.
   */
  readonly name: string;
  /** What the module was written against; default: the version of the package that it was built with. */
  readonly apiVersion?: string;
  /**
   * Checks the `config` of the module's entry and gives it its type. Pure: no I/O. A module without it takes no `config`.
   * @param raw as in the settings file; `undefined` when the entry has none
   * @throws ConfigError when it is wrong: the server refuses to start
   */
  parseConfig?(raw: unknown): Config;
  /**
   * In place of {@link parseConfig}: a schema of zod, valibot or another library that follows Standard Schema. `register` gets what it
   * makes of `config`, with its type; what is wrong with it stands in the operator's message with file and line, all at once. Without
   * `config` in its entry it gets an empty object.
   */
  readonly configSchema?: StandardSchema<Config>;
  /**
   * What `config` may hold, as JSON Schema 2020-12: for documentation, completion in editors and the form for administrators.
   * Default: what {@link configSchema} says itself, where its library can (zod 4.2, ArkType).
   */
  readonly configJsonSchema?: Readonly<Record<string, unknown>>;
  /**
   * Registers callbacks and starts what the module needs. Called once in every process, before the server listens.
   * Registering after it has returned throws.
   */
  register(api: ModuleApi, config: Config): void | Promise<void>;
}

/** A module with its brand: what a module package exports, as `default` or by name. */
export interface RookeryModule<Config = unknown> extends ModuleDefinition<Config> {
  /** Brand. */
  readonly $$type: 'RookeryModule';
  readonly apiVersion: string;
  parseConfig(raw: unknown): Config;
  /** What `config` may hold, where the module says so. */
  readonly configJsonSchema?: Readonly<Record<string, unknown>>;
}

/**
 * Declares a module. A package exports the result as its default export.
 *
 * ```ts
 * export default defineModule({
 *   name: 'no-shouting',
 *   register(api) {
 *     api.registerSpamCheckerCallbacks({
 *       async checkEventForSpam(event) {
 *         const body = event.content.body;
 *         return typeof body === 'string' && body === body.toUpperCase() ? Codes.FORBIDDEN : NOT_SPAM;
 *       },
 *     });
 *   },
 * });
 * ```
 */
export function defineModule<Config = undefined>(definition: ModuleDefinition<Config>): RookeryModule<Config> {
  const { configSchema: schema } = definition;
  if (schema && definition.parseConfig) throw new TypeError('A module has parseConfig or configSchema, not both');
  const described = plainJson(definition.configJsonSchema ?? (schema && jsonSchemaOf(schema)));
  return Object.freeze({
    $$type: 'RookeryModule',
    name: definition.name,
    apiVersion: definition.apiVersion ?? MODULE_API_VERSION,
    parseConfig: (raw: unknown) =>
      schema
        ? checkedBySchema(schema, raw)
        : definition.parseConfig
          ? definition.parseConfig(raw)
          : (takesNone(raw) as Config),
    ...(described ? { configJsonSchema: described } : {}),
    register: (api: ModuleApi, config: Config) => definition.register(api, config),
  });
}

/** As JSON: schemas of libraries carry more than that. */
function plainJson(schema: object | undefined): Readonly<Record<string, unknown>> | undefined {
  return schema && (JSON.parse(JSON.stringify(schema)) as Record<string, unknown>);
}

function takesNone(raw: unknown): undefined {
  if (raw != null) throw new ConfigError('this module takes no config');
}

/** Whether a value was made by {@link defineModule}, also of another copy of this package. */
export function isRookeryModule(value: unknown): value is RookeryModule {
  return typeof value === 'object' && value !== null && (value as { $$type?: unknown }).$$type === 'RookeryModule';
}
