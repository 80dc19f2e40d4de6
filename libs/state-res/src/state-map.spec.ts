import fc from 'fast-check';
import { splitStateKey, stateKeyOf } from './state-map.js';

describe('state keys', () => {
  it('are taken apart as they were put together, whatever they hold', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (type, stateKey) => {
        expect(splitStateKey(stateKeyOf(type, stateKey))).toEqual([type, stateKey]);
      }),
    );
    expect(stateKeyOf('a', '1:b')).not.toBe(stateKeyOf('a1:', 'b'));
  });
});
