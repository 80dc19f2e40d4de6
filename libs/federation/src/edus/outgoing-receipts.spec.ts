import { EphemeralHooks, type StoredReceipt } from '@rookery/ephemeral';
import { Config, Lifecycle, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import type { FederationSender } from '../sender/federation-sender.js';
import type { RemoteAudience } from '../sender/remote-audience.js';
import { OutgoingReceipts } from './outgoing-receipts.js';

describe('what other servers are told of what users have read', () => {
  const make = () => {
    const [clock, logger] = [new FakeClock(), new SilentLogger()];
    const hooks = new EphemeralHooks(logger);
    const servers = ['far.test', 'new.test'];
    const audience = {
      ofRooms: async (roomIds: readonly string[]) => new Map(roomIds.map((roomId) => [roomId, servers])),
      of: async () => servers,
    };
    const told: string[][] = [];
    const sender = {
      sendReceipts: (_: readonly string[], receipts: readonly StoredReceipt[]) =>
        void told.push(receipts.map(({ userId, threadId, eventId }) => [userId, threadId, eventId].join(' '))),
    };
    const out = new OutgoingReceipts(
      // A room with two servers rests for two seconds.
      ...([clock, Config.fromObject({ federation_rr_transactions_per_room_per_second: 1 }), hooks] as const),
      ...([audience as unknown as RemoteAudience, sender as unknown as FederationSender] as const),
      ...([new Lifecycle(clock, logger), logger] as const),
    );
    out.onModuleInit();
    const read = async (position: number, userId = '@a', threadId?: string): Promise<void> => {
      const eventId = `$${position}`;
      const receipt = { roomId: '!r', type: 'm.read', ts: 0, eventStreamOrdering: undefined } as const;
      hooks.receiptsSent([{ ...receipt, userId, threadId, eventId, position }]);
      await clock.advance(1);
    };
    return { clock, told, read };
  };

  it('is what they read last, in whatever order processes tell of it', async () => {
    const { clock, told, read } = make();
    await read(5);
    // Older than the one that went at once.
    await read(4);
    await read(8, '@a', 'main');
    await read(7, '@a', 'main');
    await read(3, '@a', '$root');
    await read(2, '@b');
    await read(9, '@b');
    await read(6, '@b');
    await clock.advance(2_000);
    // It rests once more, behind what went then.
    await read(1, '@b');
    await read(10);
    await clock.advance(2_000);
    expect(told).toEqual([['@a  $5'], ['@a main $8', '@a $root $3', '@b  $9'], ['@a  $10']]);
    await clock.advance(2_000);
    expect([told.length, clock.pendingTimers]).toEqual([3, 0]);
  });

  it('is remembered for a pause more, however long others go on reading', async () => {
    const { clock, told, read } = make();
    await read(10);
    for (let pause = 0; pause < 3; pause++) {
      await read(20 + pause, '@b');
      await read(1 + pause);
      await clock.advance(2_000);
    }
    expect(told).toEqual([['@a  $10'], ['@b  $20'], ['@b  $21'], ['@b  $22', '@a  $3']]);
  });
});

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
