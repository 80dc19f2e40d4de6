import { decodeBase64, decodeBase64Strict, signJson, SigningKey, verifyJson, VerifyKey } from './index.js';

const key = SigningKey.fromSeed('a_test', Buffer.alloc(32, 9));

describe('SigningKey', () => {
  it('writes and reads the key file', () => {
    expect(key.serialize()).toBe('ed25519 a_test CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk');
    const file = `${key.serialize()}\r\n\n# old\ned25519 b ${'CQkJ'.repeat(10)}CQg=\n`;
    const keys = SigningKey.parseFile(file);
    expect(keys.map((one) => one.keyId)).toEqual(['ed25519:a_test', 'ed25519:b']);
    expect(keys[0]?.publicKey).toBe(key.publicKey);
    expect(SigningKey.parseFile('')).toEqual([]);
  });

  it.each(['ed25519 a', 'ed25519', 'rsa a CQk', 'ed25519 a! CQk', 'ed25519 a CQk', 'ed25519 a CQk more', 'x'])(
    'refuses the line "%s" and keeps the secret',
    (line) => {
      expect(() => SigningKey.parseFile(line)).toThrow(SyntaxError);
      expect(() => SigningKey.parseFile(line)).not.toThrow(/CQk/);
    },
  );

  it('a generated key is a new one each time', () => {
    const [a, b] = [SigningKey.generate(), SigningKey.generate()];
    expect(a.keyId).toMatch(/^ed25519:a_[A-Za-z]{4}$/);
    expect(a.publicKey).not.toBe(b.publicKey);
    expect(SigningKey.generate('v', (length) => new Uint8Array(length).fill(9)).publicKey).toBe(key.publicKey);
    expect(() => SigningKey.fromSeed('v', Buffer.alloc(31))).toThrow(RangeError);
    expect(() => SigningKey.fromSeed('v w', Buffer.alloc(32))).toThrow(RangeError);
  });

  it('does not show its secret by accident', () => {
    expect(JSON.stringify(key)).toBe(JSON.stringify({ keyId: key.keyId, publicKey: key.publicKey }));
  });

  it('signs what the other half verifies', async () => {
    const verifyKey = VerifyKey.parse(key.publicKey) as VerifyKey;
    const signature = key.sign('text');
    expect(signature).toMatch(/^[A-Za-z0-9+/]{86}$/);
    expect(verifyKey.verify('text', signature)).toBe(true);
    expect(verifyKey.verify('other', signature)).toBe(false);
    expect(await verifyKey.verifyInBackground('text', signature)).toBe(true);
    expect(await verifyKey.verifyInBackground('other', signature)).toBe(false);
    expect(await verifyKey.verifyInBackground('text', 'short')).toBe(false);
    for (const wrong of ['', 'x', key.publicKey.slice(1), `${key.publicKey}AA`])
      expect(VerifyKey.parse(wrong)).toBeUndefined();
  });
});

describe('signed JSON', () => {
  it('covers everything but signatures and unsigned', () => {
    const signed = signJson({ a: 1, unsigned: { b: 2 }, signatures: { other: { k: 'x' } } }, 'me', key);
    expect(Object.keys(signed.signatures)).toEqual(['other', 'me']);
    expect(verifyJson(signed, 'me', key.keyId, key.verifyKey)).toBe(true);
    expect(
      verifyJson(
        { ...signed, unsigned: 3, signatures: { me: signed.signatures['me'] } },
        'me',
        key.keyId,
        key.verifyKey,
      ),
    ).toBe(true);
    expect(verifyJson({ ...signed, a: 2 }, 'me', key.keyId, key.verifyKey)).toBe(false);
    expect(verifyJson({ ...signed, b: 1 }, 'me', key.keyId, key.verifyKey)).toBe(false);
    expect(verifyJson(signed, 'other', key.keyId, key.verifyKey)).toBe(false);
    expect(verifyJson(signed, 'me', 'ed25519:x', key.verifyKey)).toBe(false);
    expect(verifyJson(signed, 'me', 'toString', key.verifyKey)).toBe(false);
  });

  it('is never valid where it is no signed object', () => {
    const valid = (object: unknown): boolean => verifyJson(object, 'me', key.keyId, key.verifyKey);
    for (const object of [null, undefined, 1, 'x', [], {}, { signatures: null }, { signatures: { me: 1 } }]) {
      expect(valid(object)).toBe(false);
    }
    let deep: unknown = 1;
    for (let i = 0; i < 10_000; i++) deep = [deep];
    expect(valid({ deep, signatures: { me: { [key.keyId]: 'x' } } })).toBe(false);
  });
});

describe('base64', () => {
  it('is decoded leniently where others wrote it', () => {
    for (const text of ['+/8', '-_8', '+/8=', '-_8=', '+/9']) expect(decodeBase64(text)?.toString('hex')).toBe('fbff');
    for (const text of ['+/8 ', 'a', 'aaaaa', '+/8\n', 'é8', '+=/8', '+/8===', '+/*8']) {
      expect(decodeBase64(text)).toBeUndefined();
    }
  });

  it('is decoded strictly where we did', () => {
    expect(decodeBase64Strict('+/8')?.toString('hex')).toBe('fbff');
    for (const text of ['-_8', '+/8=', '+/9', '+/8 ']) expect(decodeBase64Strict(text)).toBeUndefined();
  });
});
