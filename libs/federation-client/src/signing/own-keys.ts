import { type KnownKey, type SigningKey, VerifyKey } from '@rookery/events';

/** A key that this server signed with once. */
export interface OldKey {
  /** `ed25519:…` */
  readonly keyId: string;
  /** Unpadded base64. */
  readonly publicKey: string;
  /** When it was last used, milliseconds since the epoch. */
  readonly expiredTs: number;
}

/** The keys of this server. */
export class OwnKeys {
  readonly #known = new Map<string, KnownKey>();

  /**
   * @param signing the first one signs; all are published
   * @param old keys of the past
   * @param notary keys that sign when this server tells of other servers' keys
   * @throws RangeError when an old key is no key, or when there is none that signs
   */
  constructor(
    readonly serverName: string,
    readonly signing: readonly SigningKey[],
    readonly old: readonly OldKey[] = [],
    readonly notary: readonly SigningKey[] = signing.slice(0, 1),
  ) {
    if (signing.length === 0) throw new RangeError('A server needs a key that signs');
    for (const { keyId, publicKey, expiredTs } of old) {
      const key = VerifyKey.parse(publicKey);
      if (key === undefined || !/^ed25519:[A-Za-z0-9_]+$/.test(keyId))
        throw new RangeError(`The old signing key ${keyId} is not an Ed25519 key`);
      this.#known.set(keyId, { key, validUntilTs: expiredTs });
    }
    for (const key of signing)
      this.#known.set(key.keyId, { key: key.verifyKey, validUntilTs: Number.MAX_SAFE_INTEGER });
  }

  /** The key that signs. */
  get current(): SigningKey {
    const [first] = this.signing;
    if (first === undefined) throw new RangeError('A server needs a key that signs');
    return first;
  }

  /** A key of this server as others know it. */
  known(keyId: string): KnownKey | undefined {
    return this.#known.get(keyId);
  }
}
