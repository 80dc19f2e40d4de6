import { createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes, scrypt } from 'node:crypto';
import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';
import { CommandError } from '../command-error.js';

/** How what is written into a folder of backups is packed, and who can read it. */
export interface Sealing {
  /** What bytes are called: the same for the same bytes, and telling nothing of them where they are secret. */
  nameOf(data: Uint8Array): string;
  /** @param name what it will be found under: it opens under no other */
  seal(name: string, data: Uint8Array): Promise<Buffer>;
  /** @throws CommandError when it is damaged, or lay under another name */
  open(name: string, box: Uint8Array): Promise<Buffer>;
}

/** A key, wrapped in a password: it stays the same when the password changes. */
export interface WrappedKey {
  readonly kdf: 'scrypt';
  readonly cost: number;
  readonly blockSize: number;
  readonly parallelization: number;
  readonly salt: string;
  readonly key: string;
}

const cipher = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;
const keyBytes = 32;
const digestBytes = 32;
/** About half a second, and 128 MiB, for each password that is tried. */
const cost = { cost: 131_072, blockSize: 8, parallelization: 1 } as const;
const keyName = 'rookery-backup key';
const compressionLevel = 3;
const mostBytes = 1_073_741_824;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
const derive = promisify(scrypt) as (
  password: string,
  salt: Uint8Array,
  length: number,
  options: object,
) => Promise<Buffer>;

/** Packs without hiding anything. */
export const plainSealing: Sealing = {
  nameOf: (data) => createHash('sha256').update(data).digest('hex'),
  async seal(name, data) {
    const payload = await pack(data);
    return Buffer.concat([digestOf(name, payload), payload]);
  },
  async open(name, box) {
    const payload = box.subarray(digestBytes);
    if (!digestOf(name, payload).equals(box.subarray(0, digestBytes))) throw damaged(name);
    return unpack(name, payload);
  },
};

/** Hides everything behind a key. */
export function secretSealing(master: Uint8Array): Sealing {
  const keyFor = (use: string): Buffer => Buffer.from(hkdfSync('sha256', master, Buffer.alloc(0), use, keyBytes));
  const [naming, sealing] = [keyFor('names'), keyFor('contents')];
  return {
    nameOf: (data) => createHmac('sha256', naming).update(data).digest('hex'),
    seal: async (name, data) => encrypt(sealing, name, await pack(data)),
    async open(name, box) {
      const payload = decrypt(sealing, name, box);
      if (payload === undefined) throw damaged(name);
      return unpack(name, payload);
    },
  };
}

/** A new key, and what has to be kept to get at it again. */
export async function newKey(password: string): Promise<{ readonly key: Buffer; readonly wrapped: WrappedKey }> {
  const key = randomBytes(keyBytes);
  const salt = randomBytes(32);
  const wrapping = await derive(password, salt, keyBytes, { ...cost, maxmem: 512 * 1_048_576 });
  const wrapped = encrypt(wrapping, keyName, key).toString('base64');
  return { key, wrapped: { kdf: 'scrypt', ...cost, salt: salt.toString('base64'), key: wrapped } };
}

/** @throws CommandError when it is another password */
export async function unwrapKey(wrapped: WrappedKey, password: string): Promise<Buffer> {
  const { cost: n, blockSize, parallelization } = wrapped;
  if (wrapped.kdf !== 'scrypt' || n > 4 * cost.cost || blockSize > 32 || parallelization > 16)
    throw new CommandError('This version does not know how the backup is encrypted');
  const salt = Buffer.from(wrapped.salt, 'base64');
  const limits = { cost: n, blockSize, parallelization, maxmem: 4096 * 1_048_576 };
  const key = decrypt(await derive(password, salt, keyBytes, limits), keyName, Buffer.from(wrapped.key, 'base64'));
  if (key === undefined) throw new CommandError('That is not the password of these backups');
  return key;
}

function encrypt(key: Uint8Array, name: string, data: Uint8Array): Buffer {
  const nonce = randomBytes(nonceBytes);
  const encryption = createCipheriv(cipher, key, nonce);
  encryption.setAAD(Buffer.from(name));
  return Buffer.concat([nonce, encryption.update(data), encryption.final(), encryption.getAuthTag()]);
}

function decrypt(key: Uint8Array, name: string, box: Uint8Array): Buffer | undefined {
  if (box.length < nonceBytes + tagBytes) return undefined;
  const decryption = createDecipheriv(cipher, key, box.subarray(0, nonceBytes), { authTagLength: tagBytes });
  decryption.setAAD(Buffer.from(name));
  decryption.setAuthTag(box.subarray(box.length - tagBytes));
  const data = decryption.update(box.subarray(nonceBytes, box.length - tagBytes));
  try {
    return Buffer.concat([data, decryption.final()]);
  } catch {
    return undefined;
  }
}

const digestOf = (name: string, payload: Uint8Array): Buffer =>
  createHash('sha256').update(`${name}\n`).update(payload).digest();

/** Compressed where that makes it smaller: pictures and films do not get any smaller. */
async function pack(data: Uint8Array): Promise<Buffer> {
  const packed = await compress(data, { params: { [constants.ZSTD_c_compressionLevel]: compressionLevel } });
  return packed.length < data.length ? Buffer.concat([Buffer.of(1), packed]) : Buffer.concat([Buffer.of(0), data]);
}

async function unpack(name: string, payload: Uint8Array): Promise<Buffer> {
  const data = Buffer.from(payload.buffer, payload.byteOffset + 1, payload.length - 1);
  if (payload[0] === 0) return data;
  try {
    return await decompress(data, { maxOutputLength: mostBytes });
  } catch {
    throw damaged(name);
  }
}

const damaged = (name: string): CommandError => new CommandError(`${name} is damaged`);
