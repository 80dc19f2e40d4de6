import { Config } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { UnprovenLimits } from './unproven-limits.js';

const mebibyte = 1_048_576;

describe('what an address may ask for before it has proven anything', () => {
  const make = (): { limits: UnprovenLimits; clock: FakeClock } => {
    const clock = new FakeClock();
    return { clock, limits: new UnprovenLimits(Config.fromObject({}), clock) };
  };
  /** Look-ups that end when told. */
  const held = (): { find: () => Promise<string>; end: () => void; count: () => number } => {
    const ends: (() => void)[] = [];
    return {
      find: () => new Promise((resolve) => ends.push(() => resolve('key'))),
      end: () => ends.splice(0).forEach((each) => each()),
      count: () => ends.length,
    };
  };
  const found = async (): Promise<string> => 'key';
  const refused = { status: 429, errcode: 'M_LIMIT_EXCEEDED' };

  it('are sixteen keys at once, and 256 with all others', async () => {
    const { limits, clock } = make();
    const { find, end, count } = held();
    const running: Promise<string>[] = [];
    for (let i = 0; i < 16; i++) running.push(limits.lookUp('10.0.0.1', `a${i}`, find));
    await expect(limits.lookUp('10.0.0.1', 'a16', find)).rejects.toMatchObject(refused);
    // Whoever asks for what is looked for already waits with the others.
    running.push(limits.lookUp('10.0.0.1', 'a0', find), limits.lookUp('10.0.0.9', 'a1', find));
    // The addresses of one network are one.
    for (let i = 0; i < 16; i++) running.push(limits.lookUp(`2001:db8::${i + 1}`, `b${i}`, find));
    await expect(limits.lookUp('2001:db8::ffff', 'b16', find)).rejects.toMatchObject(refused);
    for (let i = 0; i < 224; i++) running.push(limits.lookUp(`10.0.1.${i}`, `c${i}`, find));
    await expect(limits.lookUp('10.0.2.1', 'd', find)).rejects.toMatchObject(refused);
    await clock.advance(1);
    expect(count()).toBe(256);
    end();
    expect(new Set(await Promise.all(running))).toEqual(new Set(['key']));
    expect(await limits.lookUp('10.0.0.1', 'a16', found)).toBe('key');
  });

  it('are a hundred keys in a burst, then five in a second', async () => {
    const { limits, clock } = make();
    for (let i = 0; i < 100; i++) await limits.lookUp('10.0.0.1', `a${i}`, found);
    await expect(limits.lookUp('10.0.0.1', 'x', found)).rejects.toMatchObject(refused);
    expect(await limits.lookUp('10.0.0.2', 'x', found)).toBe('key');
    await clock.advance(1_000);
    for (let i = 0; i < 5; i++) await limits.lookUp('10.0.0.1', `b${i}`, found);
    await expect(limits.lookUp('10.0.0.1', 'x', found)).rejects.toMatchObject(refused);
  });

  it('are a thousand keys of all addresses in a burst, then fifty in a second', async () => {
    const { limits, clock } = make();
    let address = 0;
    const other = (): string => `10.1.${address >> 8}.${address++ & 255}`;
    for (let i = 0; i < 1_000; i++) await limits.lookUp(other(), `a${i}`, found);
    await expect(limits.lookUp(other(), 'x', found)).rejects.toMatchObject(refused);
    await clock.advance(1_000);
    for (let i = 0; i < 50; i++) await limits.lookUp(other(), `b${i}`, found);
    await expect(limits.lookUp(other(), 'x', found)).rejects.toMatchObject(refused);
  });

  it('gives its place back when a look-up fails', async () => {
    const { limits } = make();
    for (let i = 0; i < 50; i++)
      await expect(limits.lookUp('10.0.0.1', `a${i}`, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await limits.lookUp('10.0.0.1', 'x', found)).toBe('key');
  });

  it('are sixteen mebibytes with wrong signatures, then 256 KiB in a second', async () => {
    const { limits, clock } = make();
    limits.noteProven('10.0.0.1', 'good.test');
    for (let i = 0; i < 4; i++) {
      await limits.assertMayProve('10.0.0.1', 'made-up.test');
      // The last goes over the brim.
      await limits.noteForged('10.0.0.1', 4 * mebibyte + (i === 3 ? mebibyte : 0));
    }
    await expect(limits.assertMayProve('10.0.0.1', 'made-up.test')).rejects.toMatchObject(refused);
    await limits.assertMayProve('10.0.0.1', 'good.test');
    await limits.assertMayProve('10.0.0.2', 'made-up.test');
    await clock.advance(1_000);
    await limits.assertMayProve('10.0.0.1', 'made-up.test');
    // Even a request without a body counts.
    for (let i = 0; i < 4; i++) await limits.noteForged('10.0.0.1', 0);
    await expect(limits.assertMayProve('10.0.0.1', 'made-up.test')).rejects.toMatchObject(refused);
  });
});
