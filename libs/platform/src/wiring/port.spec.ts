import { assemble, Port } from '../index.js';

describe('Port', () => {
  it('is filled once', () => {
    const port = new Port<() => number>('numbers', 'required');
    expect(port.given).toBeUndefined();
    port.give(() => 1);
    expect(port.given?.()).toBe(1);
    expect(() => port.give(() => 2)).toThrow('The port numbers is taken');
    port.replace(() => 3);
    expect(port.given?.()).toBe(3);
  });

  it('is looked for by name where it is required and empty', async () => {
    const build = async (): Promise<void> => {
      await Promise.resolve();
      for (const name of ['b', 'a', 'filled']) {
        const port = new Port<object>(name, 'required');
        if (name === 'filled') port.give({});
      }
      new Port<object>('optional', 'optional');
    };
    // Of two at a time each sees its own alone.
    const [one, other] = await Promise.all([assemble(build), assemble(() => Promise.resolve('built'))]);
    expect([one.empty, other]).toEqual([['a', 'b'], { built: 'built', empty: [] }]);
  });
});
