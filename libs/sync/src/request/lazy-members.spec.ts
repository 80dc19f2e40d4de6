import { Config } from '@rookery/platform';
import { LazyMemberMemory } from './lazy-members.js';

const alice = new Map([['@alice:a', '$join']]);

describe('the memory of members that were sent', () => {
  it('sends a member once, when it has arrived', () => {
    const memory = new LazyMemberMemory(Config.fromObject({ server_name: 'x' }));
    expect(memory.take('device', '!room', alice, 5)).toEqual(alice);
    memory.confirm('device', 5);
    expect(memory.take('device', '!room', alice, 7).size).toBe(0);
    // News that are no events move a device on.
    memory.confirm('device', 9);
    expect(memory.take('device', '!room', alice, 9).size).toBe(0);
    expect(memory.take('device', '!other', alice, 9)).toEqual(alice);
    expect(memory.take('other', '!room', alice, 9)).toEqual(alice);
  });

  it('sends it again when the answer got lost', () => {
    const memory = new LazyMemberMemory(Config.fromObject({ server_name: 'x' }));
    memory.take('device', '!room', alice, 5);
    memory.confirm('device', 3);
    expect(memory.take('device', '!room', alice, 6)).toEqual(alice);
    memory.confirm('device', 6);
    expect(memory.take('device', '!room', alice, 7).size).toBe(0);
  });

  it('sends it again when it changed, and when the device begins anew', () => {
    const memory = new LazyMemberMemory(Config.fromObject({ server_name: 'x' }));
    memory.take('device', '!room', alice, 5);
    memory.confirm('device', 5);
    const renamed = new Map([['@alice:a', '$renamed']]);
    expect(memory.take('device', '!room', renamed, 6)).toEqual(renamed);
    memory.forget('device');
    expect(memory.take('device', '!room', renamed, 7)).toEqual(renamed);
  });

  it('forgets what a device had of a room that it is told of anew', () => {
    const memory = new LazyMemberMemory(Config.fromObject({ server_name: 'x' }));
    const both = new Map([...alice, ['@bob:a', '$bob']]);
    memory.take('device', '!room', both, 5);
    memory.confirm('device', 5);
    expect(memory.take('device', '!room', alice, 6, { anew: true })).toEqual(alice);
    // The answer got lost: the device still has what it had.
    memory.confirm('device', 5);
    expect(memory.take('device', '!room', both, 7).size).toBe(0);
    memory.take('device', '!room', new Map(), 8, { anew: true });
    memory.confirm('device', 8);
    expect(memory.take('device', '!room', both, 9)).toEqual(both);
  });
});
