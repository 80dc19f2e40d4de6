import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Cache, Clock, Config, Logger } from '@rookery/platform';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { AppserviceClient } from './appservice-client.js';

const timeoutMs = 15_000;
/** What a service says of a protocol changes rarely; one that did not answer is asked again soon. */
const keptMs = 3_600_000;
const keptFailureMs = 60_000;
/** Most results of one service. */
const maxResults = 1_000;

/** What is looked for on third-party networks. */
export type ThirdPartyKind = 'user' | 'location';

interface Kept {
  readonly untilMs: number;
  readonly protocol: JsonObject | undefined;
}

/**
 * The networks that application services bridge to, and who and what is there.
 * @spec client-server-api#third-party-networks
 */
@Injectable()
export class ThirdPartyNetworks {
  readonly #protocols: Cache<string, Promise<Kept>>;

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly client: AppserviceClient,
    private readonly clock: Clock,
    private readonly logger: Logger,
    config: Config,
  ) {
    this.#protocols = new Cache(config, 'third_party_protocols', { invalidation: 'expires', max: 2_000 });
  }

  /** All protocols about which a service has answered, by name. */
  async protocols(): Promise<Record<string, JsonObject>> {
    const names = new Set(this.registry.all.flatMap((one) => one.fields.protocols));
    const found = await Promise.all([...names].map(async (name) => [name, await this.protocol(name)] as const));
    return Object.fromEntries(found.flatMap(([name, protocol]) => (protocol ? [[name, protocol]] : [])));
  }

  /** What services say of a protocol, the instances of all of them together; `undefined` when none does. */
  async protocol(name: string): Promise<JsonObject | undefined> {
    const services = this.#speaking(name);
    const answers = await Promise.all(services.map((service) => this.#protocolOf(service, name)));
    const [first, ...others] = answers.filter((one) => one !== undefined);
    if (!first) return undefined;
    return { ...first, instances: [first, ...others].flatMap((one) => one['instances'] as JsonObject[]) };
  }

  /** Users or rooms that match fields of a protocol; `undefined` when nobody speaks it. */
  async search(
    kind: ThirdPartyKind,
    protocol: string,
    fields: Readonly<Record<string, string | readonly string[]>>,
  ): Promise<JsonObject[] | undefined> {
    const services = this.#speaking(protocol);
    if (services.length === 0) return undefined;
    return this.#results(services, kind, `/${encodeURIComponent(protocol)}`, fields);
  }

  /** What a user or an alias of a service's namespace is on its network. */
  reverse(kind: ThirdPartyKind, name: string): Promise<JsonObject[]> {
    const services = this.registry.all.filter(
      (one) => one.fields.url !== undefined && (kind === 'user' ? one.covers(name) : one.coversAlias(name)),
    );
    return this.#results(services, kind, '', { [kind === 'user' ? 'userid' : 'alias']: name });
  }

  #speaking(protocol: string): Registration[] {
    return this.registry.all.filter((one) => one.fields.url !== undefined && one.fields.protocols.includes(protocol));
  }

  async #protocolOf(service: Registration, name: string): Promise<JsonObject | undefined> {
    const key = `${service.id}\n${name}`;
    const kept = this.#protocols.get(key);
    if (kept && (await kept).untilMs > this.clock.nowMs()) return (await kept).protocol;
    const asking = this.#askProtocol(service, name);
    // Another request may have begun to ask while this one looked.
    if (this.#protocols.get(key) === kept) this.#protocols.set(key, asking);
    return (await asking).protocol;
  }

  async #askProtocol(service: Registration, name: string): Promise<Kept> {
    const answer = await this.#ask(service, `/protocol/${encodeURIComponent(name)}`, {});
    const isUsable = isJsonObject(answer) && Array.isArray(answer['instances'] ?? []);
    if (!isUsable) return { untilMs: this.clock.nowMs() + keptFailureMs, protocol: undefined };
    const instances = ((answer['instances'] ?? []) as unknown[])
      .slice(0, maxResults)
      .filter((one) => isJsonObject(one))
      // Clients name an instance by it when they ask for its rooms: `third_party_instance_id`.
      .map((one) =>
        typeof one['network_id'] === 'string' ? { ...one, instance_id: `${service.id}|${one['network_id']}` } : one,
      );
    const protocol = { user_fields: [], location_fields: [], icon: '', field_types: {}, ...answer, instances };
    return { untilMs: this.clock.nowMs() + keptMs, protocol };
  }

  async #results(
    services: readonly Registration[],
    kind: ThirdPartyKind,
    path: string,
    query: Readonly<Record<string, string | readonly string[]>>,
  ): Promise<JsonObject[]> {
    const answers = await Promise.all(services.map((service) => this.#ask(service, `/${kind}${path}`, query)));
    const key = kind === 'user' ? 'userid' : 'alias';
    const isResult = (one: unknown): one is JsonObject =>
      isJsonObject(one) &&
      typeof one[key] === 'string' &&
      typeof one['protocol'] === 'string' &&
      isJsonObject(one['fields']);
    return answers.flatMap((answer) => (Array.isArray(answer) ? answer.slice(0, maxResults).filter(isResult) : []));
  }

  /** The JSON that a service answers; `undefined` when it does not. */
  async #ask(
    service: Registration,
    path: string,
    query: Readonly<Record<string, string | readonly string[]>>,
  ): Promise<unknown> {
    try {
      const legacyPath = `/_matrix/app/unstable/thirdparty${path}`;
      const request = { method: 'GET', path: `/v1/thirdparty${path}`, legacyPath, query, timeoutMs } as const;
      const { status, json } = await this.client.send(service, request);
      if (status === 200) return json;
      if (status !== 404)
        this.logger.warn('An application service did not answer a question', { service: service.id, path, status });
    } catch (error) {
      this.logger.warn('An application service did not answer a question', { service: service.id, path, err: error });
    }
    return undefined;
  }
}
