import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, domainOf, isJsonObject, isValidUserId, MatrixError } from '@rookery/matrix-types';
import { verifyJson, VerifyKey } from '@rookery/events';
import { Config } from '@rookery/platform';
import { holdAccount } from '@rookery/users';
import { isName, limits } from '../common/limits.js';
import { RemoteKeys } from '../common/remote-keys.js';
import { deviceKeysOf, heldDevicesOf } from './device-key.query.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import {
  coveredText,
  type CrossSigningKey,
  parseCrossSigningKey,
  signaturesBy,
} from '../cross-signing/cross-signing-key.js';
import {
  type SignatureRow,
  crossSigningKeysOf,
  type CrossSigningType,
  writeSignatures,
} from '../cross-signing/cross-signing.query.js';

/** Why a signature was not stored, by user and key. */
export type SignatureFailures = Record<string, Record<string, { errcode: string; error: string }>>;

/** What the signer knows: own devices and keys, and the master keys of others. */
interface Known {
  readonly signerId: string;
  readonly devices: ReadonlyMap<string, JsonObject>;
  readonly own: ReadonlyMap<CrossSigningType, CrossSigningKey>;
  readonly masters: ReadonlyMap<string, CrossSigningKey>;
}

const noSuchTarget = (): MatrixError => MatrixError.notFound('There is no such device or key');
const invalid = (message: string): MatrixError => MatrixError.invalidSignature(message);

/** Signatures that users make with their cross-signing keys and devices. */
@Injectable()
export class SignatureService {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly remote: RemoteKeys,
    private readonly deviceLists: DeviceListService,
  ) {}

  /**
   * Stores the signatures that hold: of a user on own devices by the self-signing key, on the own master key by a device, on
   * master keys of others by the user-signing key.
   * @param body signed objects, by user and by device id or public key
   * @returns why others were not stored
   * @throws MatrixError 400 `M_BAD_JSON`, 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   * @spec client-server-api#post_matrixclientv3keyssignaturesupload
   */
  async upload(userId: string, body: JsonObject): Promise<SignatureFailures> {
    const entries = signedObjects(body);
    const failures: SignatureFailures = {};
    const known = await this.#known(userId, [...new Set(entries.map((entry) => entry.targetUserId))]);
    const fail = (targetUserId: string, targetId: string, { errcode, message }: MatrixError): void => {
      (failures[targetUserId] ??= {})[targetId] = { errcode, error: message };
    };
    const signatures = entries.flatMap(({ targetUserId, targetId, object }) => {
      try {
        return targetUserId === userId
          ? onOwnKey(known, targetId, object)
          : onMasterOfOther(known, targetUserId, targetId, object);
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
        fail(targetUserId, targetId, error);
        return [];
      }
    });
    if (signatures.length === 0) return failures;
    const isOnDevice = (one: SignatureRow): boolean => one.targetUserId === userId && known.devices.has(one.targetId);
    const devices = [...new Set(signatures.filter(isOnDevice).map((one) => one.targetId))];
    for (const deviceId of await this.#store(userId, devices, signatures)) fail(userId, deviceId, noSuchTarget());
    return failures;
  }

  /**
   * @param devices own ones that are signed
   * @returns those of them that have been deleted meanwhile: signatures on them are not stored
   */
  #store(userId: string, devices: readonly string[], signatures: readonly SignatureRow[]): Promise<string[]> {
    return this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        const held = devices.length > 0 ? await heldDevicesOf(tx, userId, devices) : new Set<string>();
        const gone = new Set(devices.filter((deviceId) => !held.has(deviceId)));
        const kept = signatures.filter((one) => one.targetUserId !== userId || !gone.has(one.targetId));
        const own = new Set(kept.filter((one) => one.targetUserId === userId).map((one) => one.targetId));
        const others = new Set(kept.map((one) => one.targetUserId).filter((target) => target !== userId));
        await writeSignatures(tx, kept);
        await this.deviceLists.changed(tx, userId, [...own]);
        if (others.size > 0) await this.deviceLists.signed(tx, userId, [...others]);
        return [...gone];
      },
      { name: 'signatures_upload', anyProcess: this.deviceLists.stream.isWrittenHere },
    );
  }

  async #known(signerId: string, targets: readonly string[]): Promise<Known> {
    const isHere = (userId: string): boolean => domainOf(userId) === this.config.serverName;
    const elsewhere = targets.filter((userId) => !isHere(userId)).map((userId) => [userId, []] as const);
    if (elsewhere.length > 0) this.database.onlyAtWriter('keys of other servers');
    const [deviceRows, keyRows, { answers }] = await Promise.all([
      deviceKeysOf(this.database, [signerId]),
      crossSigningKeysOf(this.database, [signerId, ...targets.filter(isHere)]),
      this.remote.query(signerId, elsewhere, limits.remoteTimeoutMs),
    ]);
    const masters = new Map<string, CrossSigningKey>();
    const own = new Map<CrossSigningType, CrossSigningKey>();
    for (const { userId, type, keyJson } of keyRows) {
      const key = parseCrossSigningKey(JSON.parse(keyJson), type, userId);
      if (type === 'master') masters.set(userId, key);
      if (userId === signerId) own.set(type, key);
    }
    for (const { master_keys: remoteMasters } of answers) {
      for (const [userId, object] of Object.entries(remoteMasters ?? {})) {
        try {
          masters.set(userId, parseCrossSigningKey(object, 'master', userId));
        } catch (error) {
          // What that server says is no key: there is none to sign.
          if (!MatrixError.is(error)) throw error;
        }
      }
    }
    return {
      signerId,
      devices: new Map(deviceRows.map((row) => [row.deviceId, JSON.parse(row.keyJson) as JsonObject])),
      own,
      masters,
    };
  }
}

function signedObjects(body: JsonObject): { targetUserId: string; targetId: string; object: unknown }[] {
  const entries = Object.entries(body).flatMap(([targetUserId, objects]) => {
    if (!isValidUserId(targetUserId)) throw MatrixError.badJson('The body must hold signed objects by user');
    if (!isJsonObject(objects)) throw MatrixError.badJson('The body must hold signed objects by user and key');
    return Object.entries(objects).map(([targetId, object]) => ({ targetUserId, targetId, object }));
  });
  if (entries.length > limits.signedObjects)
    throw MatrixError.tooLarge(`Not more than ${limits.signedObjects} objects can be signed at once`);
  return entries;
}

function onOwnKey(known: Known, targetId: string, object: unknown): SignatureRow[] {
  const { signerId, devices, own } = known;
  const master = own.get('master');
  if (master?.publicKey === targetId) {
    const signed = sameObject(object, master.object);
    return kept(known, signerId, targetId, signed, (keyId) => {
      const keys = devices.get(keyId.slice('ed25519:'.length))?.['keys'];
      const publicKey = isJsonObject(keys) ? keys[keyId] : undefined;
      return typeof publicKey === 'string' ? VerifyKey.parse(publicKey) : undefined;
    });
  }
  const device = devices.get(targetId);
  if (device === undefined) throw noSuchTarget();
  const signer = own.get('self_signing');
  if (signer === undefined) throw MatrixError.notFound('There is no self-signing key');
  const signed = sameObject(object, device);
  return kept(known, signerId, targetId, signed, (keyId) => (keyId === signer.keyId ? signer.verifyKey : undefined));
}

function onMasterOfOther(known: Known, targetUserId: string, targetId: string, object: unknown): SignatureRow[] {
  const master = known.masters.get(targetUserId);
  if (master === undefined || master.publicKey !== targetId) throw MatrixError.notFound('There is no such master key');
  const signer = known.own.get('user_signing');
  if (signer === undefined) throw MatrixError.notFound('There is no user-signing key');
  const signed = sameObject(object, master.object);
  return kept(known, targetUserId, targetId, signed, (keyId) =>
    keyId === signer.keyId ? signer.verifyKey : undefined,
  );
}

/** @throws MatrixError when the object is not what we have, signatures apart */
function sameObject(object: unknown, stored: JsonObject): JsonObject {
  if (!isJsonObject(object)) throw MatrixError.badJson('A signed object is needed');
  if (coveredText(object) !== coveredText(stored)) throw invalid('The object is not the one that is known');
  return object;
}

/** The signatures that hold. @throws MatrixError when none is by a key that may sign here, or one does not hold */
function kept(
  { signerId }: Known,
  targetUserId: string,
  targetId: string,
  object: JsonObject,
  keyOf: (keyId: string) => VerifyKey | undefined,
): SignatureRow[] {
  const rows = signaturesBy(object, signerId).flatMap(([keyId, signature]): SignatureRow[] => {
    const key = isName(keyId) ? keyOf(keyId) : undefined;
    if (key === undefined) return [];
    if (!verifyJson(object, signerId, keyId, key)) throw invalid('The signature is not valid');
    return [{ userId: signerId, keyId, targetUserId, targetId, signature }];
  });
  if (rows.length === 0) throw invalid('There is no signature by a key that may sign this');
  return rows;
}
