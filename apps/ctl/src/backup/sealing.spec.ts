import { randomBytes } from 'node:crypto';
import { newKey, plainSealing, type Sealing, secretSealing, unwrapKey } from './sealing.js';

describe.each([
  ['plain', plainSealing],
  ['secret', secretSealing(randomBytes(32))],
] as const satisfies readonly (readonly [string, Sealing])[])('%s sealing', (_, sealing) => {
  it.each([Buffer.alloc(0), Buffer.alloc(100_000, 'again '), randomBytes(100_000)])(
    'gives back what was sealed, and nothing else',
    async (data) => {
      const name = sealing.nameOf(data);
      const box = await sealing.seal(name, data);
      expect((await sealing.open(name, box)).equals(data)).toBe(true);
      await expect(sealing.open(sealing.nameOf(Buffer.of(1)), box)).rejects.toThrow('is damaged');
      await expect(sealing.open(name, box.subarray(0, box.length - 1))).rejects.toThrow('is damaged');
      for (const at of [0, Math.floor(box.length / 2), box.length - 1]) {
        const spoiled = Buffer.from(box);
        spoiled[at] = (spoiled[at] ?? 0) ^ 1;
        await expect(sealing.open(name, spoiled)).rejects.toThrow('is damaged');
      }
    },
  );
});

describe('a key behind a password', () => {
  it('is had with it alone, and names tell nothing', async () => {
    const { key, wrapped } = await newKey('sesame');
    expect((await unwrapKey(wrapped, 'sesame')).equals(key)).toBe(true);
    await expect(unwrapKey(wrapped, 'Sesame')).rejects.toThrow('not the password');
    await expect(unwrapKey({ ...wrapped, cost: 2 ** 24 }, 'sesame')).rejects.toThrow('does not know how');
    const data = Buffer.from('known to everybody');
    expect(secretSealing(key).nameOf(data)).not.toBe(plainSealing.nameOf(data));
    expect((await secretSealing(key).seal('x', data)).includes(data)).toBe(false);
  });
});
