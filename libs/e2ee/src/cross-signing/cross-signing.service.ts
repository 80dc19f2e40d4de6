import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { canonicalJson, verifyJson } from '@rookery/events';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, KeyedMutex, type Requester, type RequestOrigin } from '@rookery/platform';
import { DeviceService, holdAccount, UserAuthGate, UserHooks } from '@rookery/users';
import { DeviceListService } from '../device-lists/device-list.service.js';
import { checkEncoding, coveredText, type CrossSigningKey, parseCrossSigningKey } from './cross-signing-key.js';
import {
  type CrossSigningRow,
  crossSigningKeysOf,
  type CrossSigningType,
  deleteCrossSigning,
  replaceCrossSigningKeys,
  setReplaceableUntil,
  signaturesOn,
} from './cross-signing.query.js';

/** Keys of users on the wire, to which this service adds. */
export interface KeysOnTheWire {
  readonly device_keys: Record<string, Record<string, JsonObject>>;
  readonly master_keys: Record<string, JsonObject>;
  readonly self_signing_keys: Record<string, JsonObject>;
  readonly user_signing_keys: Record<string, JsonObject>;
}

const types: readonly CrossSigningType[] = ['master', 'self_signing', 'user_signing'];

/** Cross-signing keys of local users. @spec client-server-api#cross-signing */
@Injectable()
export class CrossSigningService {
  // Two uploads of one user must not both find that there is nothing yet.
  readonly #uploads = new KeyedMutex({ maxWaiting: 20, refuse: () => MatrixError.limitExceeded(2_000) });

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly gate: UserAuthGate,
    private readonly devices: DeviceService,
    private readonly deviceLists: DeviceListService,
    userHooks: UserHooks,
  ) {
    userHooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteCrossSigning(tx, userId) });
  }

  /**
   * Stores keys. The first ones need no confirmation, nor do those that are there already; replacing them does.
   * @throws InteractiveAuthRequired
   * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, `M_INVALID_SIGNATURE`, `M_MISSING_PARAM` (no master key),
   *   403 `M_FORBIDDEN` (a device has the key's id)
   * @spec client-server-api#post_matrixclientv3keysdevice_signingupload
   */
  upload(requester: Requester, request: RequestOrigin, body: JsonObject): Promise<void> {
    return this.#uploads.run(requester.userId, () => this.#upload(requester, request, body));
  }

  /**
   * Lets a user replace the keys without confirmation until a time: the user signed in elsewhere lost the means to confirm.
   * @returns whether the user has keys
   */
  allowReplacement(userId: string, untilMs: number): Promise<boolean> {
    return this.database.write((tx) => setReplaceableUntil(tx, userId, untilMs), { name: 'cross_signing_allow' });
  }

  /** A local user's keys, by type. */
  async keysOf(userId: string): Promise<Map<CrossSigningType, CrossSigningRow>> {
    return new Map((await crossSigningKeysOf(this.database, [userId])).map((row) => [row.type, row]));
  }

  /** Adds the keys of local users. The user-signing key is for its owner alone. */
  async addKeys(userIds: readonly string[], viewerId: string | undefined, answer: KeysOnTheWire): Promise<void> {
    for (const { userId, type, keyJson } of await crossSigningKeysOf(this.database, userIds)) {
      if (type === 'user_signing' && userId !== viewerId) continue;
      answer[`${type}_keys`][userId] = JSON.parse(keyJson) as JsonObject;
    }
  }

  /** Adds the signatures that were uploaded for the keys in an answer and that the viewer may see, in one query. */
  async addSignatures(viewerId: string | undefined, answer: KeysOnTheWire): Promise<void> {
    const userIds = new Set([...Object.keys(answer.device_keys), ...Object.keys(answer.master_keys)]);
    if (userIds.size === 0) return;
    for (const one of await signaturesOn(this.database, [...userIds], viewerId)) {
      const master = answer.master_keys[one.targetUserId];
      const isMaster = isJsonObject(master?.['keys']) && `ed25519:${one.targetId}` in master['keys'];
      const target = isMaster ? master : answer.device_keys[one.targetUserId]?.[one.targetId];
      if (target === undefined) continue;
      const before = isJsonObject(target['signatures']) ? target['signatures'] : {};
      const own = isJsonObject(before[one.userId]) ? (before[one.userId] as JsonObject) : {};
      target['signatures'] = { ...before, [one.userId]: { ...own, [one.keyId]: one.signature } };
    }
  }

  async #upload(requester: Requester, request: RequestOrigin, body: JsonObject): Promise<void> {
    const { userId } = requester;
    const keys = types.flatMap((type) => {
      const value = body[`${type}_key`];
      return value === undefined || value === null ? [] : [parseCrossSigningKey(value, type, userId)];
    });
    const stored = await this.keysOf(userId);
    const before = new Map(
      [...stored].map(([type, row]) => [type, parseCrossSigningKey(JSON.parse(row.keyJson), type, userId)]),
    );
    const master = keys.find((key) => key.type === 'master') ?? before.get('master');
    if (master === undefined) throw MatrixError.missingParam('There is no master key');
    checkSignatures(keys, master, userId);
    const fresh = keys.filter((key) => !isSame(key, before.get(key.type)));
    if (fresh.length === 0) return;
    // Not those that were taken before, which may come again.
    for (const key of fresh) checkEncoding(key);
    if (stored.has('master') && (stored.get('master')?.replaceableUntilMs ?? 0) <= this.clock.nowMs())
      await this.gate.require(requester, request, body, { description: 'change the keys that prove your devices' });
    for (const key of fresh)
      if (!(await this.devices.reserve(userId, key.publicKey)))
        throw MatrixError.forbidden('One of your devices has the id of the key');
    // Keys that only the former master key vouched for are worth nothing.
    const replaced = fresh.some((key) => key.type === 'master') ? types : fresh.map((key) => key.type);
    const kept = replaced === types ? keys : fresh;
    await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        const shown = kept.filter((key) => key.type !== 'user_signing');
        const ids = await this.deviceLists.changed(
          tx,
          userId,
          shown.map((key) => key.publicKey),
        );
        // Nobody else gets to see the user-signing key, so nobody else has anything to fetch.
        const ownId = shown.length < kept.length ? await this.deviceLists.signed(tx, userId, [userId]) : 0;
        await replaceCrossSigningKeys(
          tx,
          userId,
          replaced,
          kept.map((key) => ({
            type: key.type,
            keyJson: canonicalJson(key.object),
            streamId: ids[shown.indexOf(key)] ?? ownId,
          })),
        );
      },
      { name: 'cross_signing_upload' },
    );
  }
}

function isSame(key: CrossSigningKey, before: CrossSigningKey | undefined): boolean {
  return before !== undefined && coveredText(key.object) === coveredText(before.object);
}

/** @throws MatrixError 400 `M_INVALID_SIGNATURE`, `M_INVALID_PARAM` when one key serves twice */
function checkSignatures(keys: readonly CrossSigningKey[], master: CrossSigningKey, userId: string): void {
  const all = new Set([master.publicKey, ...keys.map((key) => key.publicKey)]);
  if (all.size < keys.length + (keys.includes(master) ? 0 : 1))
    throw MatrixError.invalidParam('Every cross-signing key must be another one');
  for (const key of keys) {
    if (key.type !== 'master' && !verifyJson(key.object, userId, master.keyId, master.verifyKey))
      throw MatrixError.invalidSignature(`The ${key.type} key is not signed by the master key`);
  }
}
