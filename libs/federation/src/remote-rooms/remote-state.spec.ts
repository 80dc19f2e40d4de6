import { roomVersionRules } from '@rookery/events';
import type { KeyRing } from '@rookery/federation-client';
import { Config, SilentLogger } from '@rookery/platform';
import type { EventStore } from '@rookery/rooms';
import { FakeClock } from '@rookery/testing';
import { PduChecker } from './pdu-checker.js';
import { RemoteState } from './remote-state.js';

describe('the state of a room elsewhere', () => {
  it('is given up when it takes too long to be checked', async () => {
    const clock = new FakeClock();
    let pieces = 0;
    const store = {
      many: async () => {
        pieces++;
        await clock.advance(4 * 60_000);
        return new Map();
      },
    } as unknown as EventStore;
    const checker = new PduChecker({} as KeyRing, store, new SilentLogger());
    const told = { state: Array.from({ length: 10_000 }, () => ({})), authChain: [] };
    const rules = roomVersionRules('11')!;
    const remote = new RemoteState(checker, store, clock, Config.fromObject({}));
    const reading = remote.read('evil.test', told, rules, '!r:evil.test');
    await expect(reading).rejects.toThrow('too long');
    expect(pieces).toBe(3);
  });
});
