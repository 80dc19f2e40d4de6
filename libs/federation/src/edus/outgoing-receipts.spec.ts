import { EphemeralHooks } from '@rookery/ephemeral';
import { Config, Lifecycle, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import type { FederationSender } from '../sender/federation-sender.js';
import type { RemoteAudience } from '../sender/remote-audience.js';
import { OutgoingReceipts } from './outgoing-receipts.js';

describe('what other servers are told of who types', () => {
  const make = () => {
    const [clock, logger] = [new FakeClock(), new SilentLogger()];
    const hooks = new EphemeralHooks(logger);
    const audience = { hasAny: true, servers: ['far.test'], of: async () => audience.servers };
    const told: string[] = [];
    const sender = {
      sendTyping: (servers: readonly string[], { userId, typing }: { userId: string; typing: boolean }) =>
        void told.push(`${clock.monotonicMs() / 1000} ${servers.join()} ${userId} ${typing}`),
    };
    const out = new OutgoingReceipts(
      ...([clock, Config.fromObject({}), hooks, audience as unknown as RemoteAudience] as const),
      ...([sender as unknown as FederationSender, new Lifecycle(clock, logger), logger] as const),
    );
    out.onModuleInit();
    return { clock, hooks, audience, told, out };
  };

  it('is told again while it lasts, before they take it for over', async () => {
    const { clock, hooks, audience, told } = make();
    hooks.typingChanged('!r', '@a', true);
    await clock.advance(50_000);
    audience.servers = ['far.test', 'new.test'];
    await clock.advance(50_000);
    hooks.typingChanged('!r', '@a', false);
    await clock.advance(100_000);
    expect(told).toEqual([
      '0 far.test @a true',
      '40 far.test @a true',
      '80 far.test,new.test @a true',
      '100 far.test,new.test @a false',
    ]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('leaves nothing behind, and costs nothing where there are no other servers', async () => {
    const { clock, hooks, audience, out } = make();
    hooks.typingChanged('!r', '@a', true);
    await clock.advance(1);
    expect(clock.pendingTimers).toBe(1);
    out.onModuleDestroy();
    expect(clock.pendingTimers).toBe(0);
    audience.hasAny = false;
    hooks.typingChanged('!r', '@b', true);
    await clock.advance(1);
    expect(clock.pendingTimers).toBe(0);
  });
});
