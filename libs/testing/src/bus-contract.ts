import { eventually } from './eventually.js';
import type { Bus, BusMessage } from '@rookery/replication';

// The test runner's globals; this package is compiled without its types.
declare const describe: (name: string, define: () => void) => void;
declare const it: (name: string, run: () => Promise<void>) => void;
declare const expect: (value: unknown) => { toBe(expected: unknown): void; toEqual(expected: unknown): void };

/** One bus as several processes see it. */
export interface BusUnderTest {
  /** The bus of a further process. */
  connect(): Promise<Bus>;
  stop(): Promise<void>;
}

/** What every implementation of `Bus` must do. */
export function describeBus(name: string, start: () => Promise<BusUnderTest>): void {
  const message = (position: number, extra: Partial<BusMessage> = {}): BusMessage => ({
    stream: 'events',
    writer: 'main',
    position,
    ...extra,
  });

  describe(`Bus contract: ${name}`, () => {
    it('reaches every subscriber of every process, with everything in the message', async () => {
      const under = await start();
      const [here, there] = [await under.connect(), await under.connect()];
      const heard: BusMessage[][] = [[], [], []];
      here.subscribe((one) => heard[0]?.push(one));
      here.subscribe((one) => heard[1]?.push(one));
      there.subscribe((one) => heard[2]?.push(one));
      here.publish(message(7, { users: ['@a:x'], rooms: new Set(['!r']) }));
      await eventually(() => heard.every((list) => list.length === 1));
      for (const [one] of heard) {
        expect(one?.stream).toBe('events');
        expect(one?.writer).toBe('main');
        expect(one?.position).toBe(7);
        expect([...(one?.users ?? [])]).toEqual(['@a:x']);
        expect([...(one?.rooms ?? [])]).toEqual(['!r']);
      }
      await under.stop();
    });

    it('keeps the order of one writer', async () => {
      const under = await start();
      const [here, there] = [await under.connect(), await under.connect()];
      const heard: number[] = [];
      there.subscribe((one) => heard.push(one.position));
      for (let i = 1; i <= 200; i++) here.publish(message(i));
      await eventually(() => heard.length === 200);
      expect(heard).toEqual(Array.from({ length: 200 }, (_, i) => i + 1));
      await under.stop();
    });

    it('stops telling those who left, and is silent once closed', async () => {
      const under = await start();
      const bus = await under.connect();
      const heard: string[] = [];
      const leave = bus.subscribe(() => heard.push('left'));
      bus.subscribe(() => heard.push('stayed'));
      leave();
      leave();
      bus.publish(message(1));
      await eventually(() => heard.length > 0);
      expect(heard).toEqual(['stayed']);
      await bus.close();
      bus.publish(message(2));
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(heard).toEqual(['stayed']);
      await under.stop();
    });
  });
}
