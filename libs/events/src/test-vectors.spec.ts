import { readFileSync } from 'node:fs';
import type { JsonObject, Signatures } from '@rookery/matrix-types';
import {
  canonicalJson,
  contentHash,
  decodeBase64,
  decodeBase64Strict,
  encodeBase64,
  parseJson,
  redactPdu,
  roomVersionRules,
  type RoomVersionRules,
  signJson,
  SigningKey,
  verifyJson,
} from './index.js';

interface Vectors {
  unpadded_base64: { text: string; encoded: string }[];
  canonical_json: { input_text: string; canonical: string }[];
  signing_key: { seed_base64: string; server_name: string; key_id: string; derived_public_key_base64: string };
  json_signing: { input: JsonObject; signed: JsonObject }[];
  event_signing: { input: JsonObject; signed: JsonObject & { hashes: { sha256: string }; signatures: Signatures } }[];
}

const vectors = JSON.parse(
  readFileSync(new URL('../test-vectors/matrix-1.19.json', import.meta.url), 'utf8'),
) as Vectors;
const { seed_base64, server_name, key_id, derived_public_key_base64 } = vectors.signing_key;
const key = SigningKey.fromSeed(key_id.slice('ed25519:'.length), decodeBase64(seed_base64) as Buffer);

describe('vectors of the specification', () => {
  it.each(vectors.unpadded_base64)('base64 of "$text"', ({ text, encoded }) => {
    expect(encodeBase64(Buffer.from(text))).toBe(encoded);
    expect(decodeBase64(encoded)?.toString()).toBe(text);
    expect(decodeBase64Strict(encoded)?.toString()).toBe(text);
  });

  it.each(vectors.canonical_json)('canonical form of $input_text', ({ input_text, canonical }) => {
    expect(canonicalJson(parseJson(input_text))).toBe(canonical);
  });

  it('derives the public key', () => {
    expect(key.publicKey).toBe(derived_public_key_base64);
    expect(key.keyId).toBe(key_id);
  });

  it.each(vectors.json_signing)('signs $input', ({ input, signed }) => {
    expect(signJson(input, server_name, key)).toEqual(signed);
    expect(verifyJson(signed, server_name, key_id, key.verifyKey)).toBe(true);
  });

  it.each(vectors.event_signing)('hashes and signs the event $input.type', ({ input, signed }) => {
    const rules = roomVersionRules('1') as RoomVersionRules;
    const hashed = { ...input, hashes: { sha256: contentHash(input) } };
    expect(hashed.hashes).toEqual(signed.hashes);
    expect(signJson(redactPdu(hashed, rules), server_name, key).signatures).toEqual(signed.signatures);
  });
});
