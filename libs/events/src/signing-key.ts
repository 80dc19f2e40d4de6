import { createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign, verify } from 'node:crypto';
import { decodeBase64, encodeBase64 } from './base64.js';

/** ASN.1 in front of a bare Ed25519 seed (PKCS #8) and of a bare public key (SPKI), RFC 8410. */
const pkcs8Prefix = Buffer.from('302e020100300506032b657004220420', 'hex');
const spkiPrefix = Buffer.from('302a300506032b6570032100', 'hex');

/** Most characters of the version of a key of this server. */
export const maxKeyVersion = 64;
const keyVersion = new RegExp(`^[A-Za-z0-9_]{1,${maxKeyVersion}}$`);

/** An Ed25519 key pair of this server. @spec appendices#signing-details */
export class SigningKey {
  /** Unpadded base64. */
  readonly publicKey: string;
  readonly #privateKey: KeyObject;
  readonly #seed: Buffer;

  private constructor(
    /** `ed25519:` and the version. */
    readonly keyId: string,
    seed: Uint8Array,
  ) {
    this.#seed = Buffer.from(seed);
    this.#privateKey = createPrivateKey({ key: Buffer.concat([pkcs8Prefix, seed]), format: 'der', type: 'pkcs8' });
    const spki = createPublicKey(this.#privateKey).export({ format: 'der', type: 'spki' });
    this.publicKey = encodeBase64(spki.subarray(spkiPrefix.length));
  }

  /**
   * @param version letters, digits and `_`; `a_XXXX` by custom
   * @param seed 32 bytes
   * @throws RangeError
   */
  static fromSeed(version: string, seed: Uint8Array): SigningKey {
    if (!keyVersion.test(version)) throw new RangeError('The version of a signing key is letters, digits and _');
    if (seed.length !== 32) throw new RangeError('The seed of an Ed25519 key has 32 bytes');
    return new SigningKey(`ed25519:${version}`, seed);
  }

  /**
   * A new key.
   * @param version default `a_` and four random letters
   * @param random source of randomness, for tests
   */
  static generate(version?: string, random: (length: number) => Uint8Array = randomBytes): SigningKey {
    return SigningKey.fromSeed(version ?? `a_${randomLetters(random(4))}`, random(32));
  }

  /**
   * Reads a key file: one `ed25519 <version> <unpadded base64 seed>` per line, the first one signs.
   * @throws SyntaxError when a line is something else; the message holds no key material
   */
  static parseFile(text: string): SigningKey[] {
    return text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => {
        const [algorithm, version, encoded, ...more] = line.split(/\s+/);
        const seed = decodeBase64(encoded ?? '');
        if (algorithm !== 'ed25519' || version === undefined || !keyVersion.test(version) || more.length > 0) {
          throw new SyntaxError('A line of a signing key file is `ed25519 <version> <base64>`');
        }
        if (seed?.length !== 32) throw new SyntaxError(`The signing key ${version} is not 32 bytes of base64`);
        return SigningKey.fromSeed(version, seed);
      });
  }

  /** The key's line in a key file, without the end of line. Secret. */
  serialize(): string {
    return `ed25519 ${this.keyId.slice('ed25519:'.length)} ${encodeBase64(this.#seed)}`;
  }

  /** Signs bytes, or a text as UTF-8; unpadded base64. */
  sign(data: string | Uint8Array): string {
    return encodeBase64(sign(null, typeof data === 'string' ? Buffer.from(data) : data, this.#privateKey));
  }

  /** The half that others have. */
  get verifyKey(): VerifyKey {
    return new VerifyKey(createPublicKey(this.#privateKey));
  }
}

/** Four bytes make four letters; the slight bias does not matter in a name. */
function randomLetters(bytes: Uint8Array): string {
  const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';
  return Array.from(bytes, (byte) => letters[byte % letters.length]).join('');
}

/** An Ed25519 public key, imported once. */
export class VerifyKey {
  readonly #key: KeyObject;

  /** Use {@link parse}. */
  constructor(key: KeyObject) {
    this.#key = key;
  }

  /** @returns `undefined` when the text is not 32 bytes of base64 */
  static parse(base64: string): VerifyKey | undefined {
    const bytes = decodeBase64(base64);
    if (bytes?.length !== 32) return undefined;
    return new VerifyKey(createPublicKey({ key: Buffer.concat([spkiPrefix, bytes]), format: 'der', type: 'spki' }));
  }

  /** Whether the other one is the same key. */
  equals(other: VerifyKey): boolean {
    return this.#key.equals(other.#key);
  }

  /** Whether a base64 signature of a text is right. Malformed signatures are wrong ones. */
  verify(text: string, signature: string): boolean {
    const bytes = decodeBase64(signature);
    return bytes !== undefined && verify(null, Buffer.from(text), this.#key, bytes);
  }

  /** {@link verify} on another thread: many at once use all cores, and none blocks the event loop. */
  verifyInBackground(text: string | Uint8Array, signature: string): Promise<boolean> {
    const bytes = decodeBase64(signature);
    if (bytes === undefined) return Promise.resolve(false);
    return new Promise((resolve, reject) => {
      verify(null, typeof text === 'string' ? Buffer.from(text) : text, this.#key, bytes, (error, valid) => {
        if (error === null) resolve(valid);
        else reject(error);
      });
    });
  }
}
