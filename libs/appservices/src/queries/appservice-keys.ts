import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type ClaimedKeys, E2eePorts, type ServiceDeviceKeys } from '@rookery/e2ee';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { AppserviceClient } from './appservice-client.js';

const timeoutMs = 10_000;
/** Largest key that is handed on, bytes of JSON. */
const maxKeyBytes = 65_536;
/** Most devices of one user that a service may tell of. */
const maxDevices = 1_000;

type ByDevice = Record<string, Record<string, JsonObject>>;

/** Asks services for keys of users that they have to themselves: MSC3983 (one-time keys) and MSC3984 (identity keys). */
@Injectable()
export class AppserviceKeys implements OnModuleInit {
  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly client: AppserviceClient,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly ports: E2eePorts,
  ) {}

  onModuleInit(): void {
    if (!this.registry.all.some((one) => one.fields.url !== undefined)) return;
    const claims = this.config.get('experimental_features.msc3983_appservice_otk_claims');
    const queries = this.config.get('experimental_features.msc3984_appservice_key_query');
    this.ports.appserviceKeys.give({
      ...(claims ? { claim: (wanted) => this.claim(wanted) } : {}),
      ...(queries ? { query: (wanted) => this.query(wanted) } : {}),
    });
  }

  /** One-time keys that services hand out for devices; never rejects. */
  async claim(wanted: Readonly<Record<string, Readonly<Record<string, string>>>>): Promise<ClaimedKeys> {
    const found: ByDevice = {};
    await this.#eachOwner(Object.keys(wanted), async (service, userIds) => {
      const body = Object.fromEntries(
        userIds.map((userId) => [
          userId,
          Object.fromEntries(Object.entries(wanted[userId] ?? {}).map(([device, algorithm]) => [device, [algorithm]])),
        ]),
      );
      const answer = await this.#ask(service, '/unstable/org.matrix.msc3983/keys/claim', body);
      for (const userId of userIds) {
        const devices = isJsonObject(answer) ? answer[userId] : undefined;
        for (const [deviceId, algorithm] of Object.entries(wanted[userId] ?? {})) {
          const key = oneKey(isJsonObject(devices) ? devices[deviceId] : undefined, algorithm);
          if (key) (found[userId] ??= {})[deviceId] = key;
        }
      }
    });
    return found;
  }

  /** Identity keys that services tell; never rejects. */
  async query(wanted: ReadonlyMap<string, readonly string[]>): Promise<ServiceDeviceKeys> {
    const found: ByDevice = {};
    await this.#eachOwner([...wanted.keys()], async (service, userIds) => {
      const body = { device_keys: Object.fromEntries(userIds.map((userId) => [userId, wanted.get(userId) ?? []])) };
      const answer = await this.#ask(service, '/unstable/org.matrix.msc3984/keys/query', body);
      const all = isJsonObject(answer) ? answer['device_keys'] : undefined;
      for (const userId of userIds) {
        const devices = isJsonObject(all) ? all[userId] : undefined;
        const only = wanted.get(userId) ?? [];
        for (const [deviceId, keys] of Object.entries(isJsonObject(devices) ? devices : {}).slice(0, maxDevices)) {
          if (!isUsable(keys) || (only.length > 0 && !only.includes(deviceId))) continue;
          // What a client trusts is the signed part: keys of somebody else would be refused there.
          if (keys['user_id'] === userId && keys['device_id'] === deviceId) (found[userId] ??= {})[deviceId] = keys;
        }
      }
    });
    return found;
  }

  async #eachOwner(
    userIds: readonly string[],
    ask: (service: Registration, userIds: readonly string[]) => Promise<void>,
  ): Promise<void> {
    const owners = Map.groupBy(userIds, (userId) => this.registry.exclusiveOwner(userId));
    await Promise.all(
      [...owners].map(async ([service, owned]) => {
        if (service?.fields.url !== undefined) await ask(service, owned);
      }),
    );
  }

  async #ask(service: Registration, path: string, body: JsonObject): Promise<unknown> {
    try {
      const request = { method: 'POST', path, legacyPath: undefined, body: JSON.stringify(body), timeoutMs } as const;
      const { status, json } = await this.client.send(service, request);
      if (status === 200) return json;
      // 404 and 405: it does not do that.
      if (status !== 404 && status !== 405)
        this.logger.warn('An application service did not answer a question', { service: service.id, path, status });
    } catch (error) {
      this.logger.warn('An application service did not answer a question', { service: service.id, path, err: error });
    }
    return undefined;
  }
}

const isUsable = (value: unknown): value is JsonObject =>
  isJsonObject(value) && JSON.stringify(value).length <= maxKeyBytes;

/** The first key of an algorithm, alone. */
function oneKey(keys: unknown, algorithm: string): JsonObject | undefined {
  if (!isUsable(keys)) return undefined;
  const [found] = Object.entries(keys).filter(([id, key]) => id.startsWith(`${algorithm}:`) && isJsonObject(key));
  return found && { [found[0]]: found[1] };
}
