import { createClient } from '@redis/client';
import { describeBus, describeWithRedis, eventually, TestRedis } from '@rookery/testing';
import type { BusMessage } from './bus.js';
import { RedisBus, type RedisBusOptions } from './redis-bus.js';

const caughtUp = { catchUp: () => Promise.resolve(), makeOthersCatchUp: () => Promise.resolve() };
const message = (position: number): BusMessage => ({ stream: 'events', writer: 'main', position });

describeWithRedis('Redis', () => {
  let ids = 0;
  const connect = (redis: TestRedis, more: Partial<RedisBusOptions> = {}): Promise<RedisBus> =>
    RedisBus.connect({
      ...{ host: '127.0.0.1', port: redis.port, server: 'x', id: String(++ids), ...caughtUp },
      ...more,
    });

  describeBus('Redis', async () => {
    const redis = await TestRedis.start();
    const open: RedisBus[] = [];
    return {
      connect: async () => {
        const bus = await connect(redis);
        open.push(bus);
        await eventually(() => bus.isUp);
        return bus;
      },
      stop: async () => {
        for (const bus of open) await bus.close();
        await redis.stop();
      },
    };
  });

  describe('as the bus', () => {
    let redis: TestRedis;
    const open: RedisBus[] = [];
    beforeEach(async () => {
      redis = await TestRedis.start();
    });
    afterEach(async () => {
      for (const bus of open.splice(0)) await bus.close();
      await redis.stop();
    });
    const join = async (more: Partial<RedisBusOptions> = {}): Promise<RedisBus> => {
      const bus = await connect(redis, more);
      open.push(bus);
      return bus;
    };

    it('has heard what others were told before', async () => {
      const [here, there] = [await join(), await join()];
      // What is published while one of them is not there yet does not come by this way.
      await eventually(() => here.isUp && there.isUp);
      const heard: number[] = [];
      there.subscribe((one) => heard.push(one.position));
      for (let round = 1; round <= 50; round++) {
        here.publish(message(round));
        await here.told();
        expect(await there.heard()).toBe(true);
        expect(heard.at(-1)).toBe(round);
      }
      expect(here.told()).toBeUndefined();
    });

    it('speaks to its own server only', async () => {
      const [here, other, there] = [await join(), await join({ server: 'y' }), await join()];
      // What is published while one of them is not there yet does not come by this way.
      await eventually(() => [here, other, there].every(({ isUp }) => isUp));
      const heard: number[] = [];
      other.subscribe((one) => heard.push(one.position));
      there.subscribe((one) => heard.push(-one.position));
      here.publish(message(1));
      await eventually(() => heard.length > 0);
      await other.heard();
      expect(heard).toEqual([-1]);
    });

    it('while Redis is away finds out what is new, makes others do so before anybody is answered, and is back by itself', async () => {
      const calls: string[] = [];
      const bus = await join({
        catchUp: async () => void calls.push('catch up'),
        makeOthersCatchUp: async () => void calls.push('others catch up'),
      });
      await eventually(() => bus.isUp);
      calls.length = 0;
      await redis.down();
      await eventually(() => !bus.isUp);
      calls.length = 0;
      bus.publish(message(1));
      await bus.told();
      expect(calls).toContain('others catch up');
      expect(bus.told()).toBeUndefined();
      calls.length = 0;
      await bus.heard();
      expect(calls).toContain('catch up');
      // Nobody asks: it looks by itself.
      calls.length = 0;
      await eventually(() => calls.includes('catch up'));
      await redis.up();
      await eventually(() => bus.isUp);
      const heard: number[] = [];
      bus.subscribe((one) => heard.push(one.position));
      bus.publish(message(2));
      await eventually(() => heard.length > 0);
      expect(heard).toEqual([2]);
    });

    it('makes others find out what it lost while nobody waits for that', async () => {
      let calls = 0;
      const bus = await join({ makeOthersCatchUp: async () => void calls++ });
      await eventually(() => bus.isUp);
      await redis.down();
      await eventually(() => !bus.isUp);
      bus.publish(message(1));
      await eventually(() => calls > 0);
      expect(bus.told()).toBeUndefined();
    });

    it('while Redis hangs does the same, whoever asks for something waits no longer than for its answer', async () => {
      const calls: string[] = [];
      const bus = await join({
        catchUp: async () => void calls.push('catch up'),
        makeOthersCatchUp: async () => void calls.push('others catch up'),
      });
      await eventually(() => bus.isUp);
      calls.length = 0;
      redis.hang();
      bus.publish(message(1));
      await Promise.all([bus.told(), bus.heard()]);
      expect(bus.isUp).toBe(false);
      expect(calls).toContain('others catch up');
      expect(calls).toContain('catch up');
      // From now on nobody waits for it.
      const startedMs = performance.now();
      bus.publish(message(2));
      await Promise.all([bus.told(), bus.heard()]);
      expect(performance.now() - startedMs).toBeLessThan(1_500);
      const heard: number[] = [];
      bus.subscribe((one) => heard.push(one.position));
      redis.goOn();
      await eventually(() => bus.isUp);
      bus.publish(message(3));
      await eventually(() => heard.includes(3));
      expect(await bus.heard()).toBe(true);
    });

    it('says that something may have been missed with the first look since Redis went away, and since it is back', async () => {
      const looks: boolean[] = [];
      const bus = await join({ catchUp: async (hasMissed) => void looks.push(hasMissed) });
      await eventually(() => bus.isUp);
      await bus.heard();
      looks.length = 0;
      await redis.down();
      await eventually(() => !bus.isUp);
      await bus.heard();
      await bus.heard();
      expect([looks[0], looks.includes(true, 1)]).toEqual([true, false]);
      looks.length = 0;
      await redis.up();
      await eventually(() => looks.includes(true));
    });

    it('has heard nothing before it has found out what it missed', async () => {
      let release: (() => void) | undefined;
      let waits = false;
      const catchUp = (): Promise<void> => (waits ? new Promise((resolve) => (release = resolve)) : Promise.resolve());
      const bus = await join({ catchUp });
      await eventually(() => bus.isUp);
      await redis.down();
      await eventually(() => !bus.isUp);
      waits = true;
      await eventually(() => release !== undefined);
      await redis.up();
      await eventually(() => bus.isUp);
      let isHeard = false;
      const heard = bus.heard().then(() => (isHeard = true));
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(isHeard).toBe(false);
      waits = false;
      release!();
      await heard;
    });

    it('answers nobody while others still find out what it lost', async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const bus = await join({ makeOthersCatchUp: () => promise });
      await redis.down();
      await eventually(() => !bus.isUp);
      bus.publish(message(1));
      bus.publish(message(2));
      const one = bus.told();
      await new Promise((done) => setTimeout(done, 20));
      let isTold = false;
      const other = Promise.resolve(bus.told()).then(() => (isTold = true));
      await new Promise((done) => setTimeout(done, 20));
      expect(isTold).toBe(false);
      resolve();
      await Promise.all([one, other]);
      expect(bus.told()).toBeUndefined();
    });

    it('is not closed before what it told is on its way, but for a Redis that hangs it does not wait for long', async () => {
      const [here, there, other] = [await join(), await join(), await join()];
      await eventually(() => [here, there, other].every(({ isUp }) => isUp));
      const heard: number[] = [];
      there.subscribe((one) => heard.push(one.position));
      for (let position = 1; position <= 500; position++) here.publish(message(position));
      await here.close();
      await eventually(() => heard.length === 500);
      redis.hang();
      other.publish(message(501));
      const startedMs = performance.now();
      await other.close();
      expect(performance.now() - startedMs).toBeLessThan(5_000);
      redis.goOn();
    });

    it('starts without Redis, and joins it when it is there', async () => {
      await redis.down();
      const bus = await join();
      expect(bus.isUp).toBe(false);
      await redis.up();
      await eventually(() => bus.isUp);
      expect(await bus.heard()).toBe(true);
    });
  });

  describe('with rights that change', () => {
    let redis: TestRedis;
    let admin: ReturnType<typeof createClient>;
    let bus: RedisBus | undefined;
    beforeEach(async () => {
      redis = await TestRedis.start('--user', 'rook', 'on', '>secret', '~*', '&*', '+@all');
      admin = createClient({ socket: { host: '127.0.0.1', port: redis.port } });
      await admin.connect();
    });
    afterEach(async () => {
      await bus?.close();
      admin.destroy();
      await redis.stop();
    });
    const may = (...rules: string[]): Promise<unknown> => admin.sendCommand(['ACL', 'SETUSER', 'rook', ...rules]);
    const user = { username: 'rook', password: 'secret' };

    it('is back when Redis takes again what it refused on a connection that lives', async () => {
      let calls = 0;
      bus = await connect(redis, { ...user, makeOthersCatchUp: async () => void calls++ });
      await eventually(() => bus?.isUp);
      await may('-publish');
      // Nobody asks whether that was told.
      bus.publish(message(1));
      await eventually(() => calls > 0);
      await bus.heard();
      expect(bus.isUp).toBe(false);
      // The answer to the question whether it is there again is a refusal, too.
      await new Promise((resolve) => setTimeout(resolve, 200));
      await may('+publish');
      await eventually(() => bus?.isUp);
    });

    it('is there when Redis lets it listen at last, and hears everything once', async () => {
      await may('resetchannels', '&rookery:x');
      bus = await connect(redis, user);
      expect(bus.isUp).toBe(false);
      await may('allchannels');
      await eventually(() => bus?.isUp);
      const heard: number[] = [];
      bus.subscribe((one) => heard.push(one.position));
      bus.publish(message(1));
      await bus.told();
      expect(await bus.heard()).toBe(true);
      expect(heard).toEqual([1]);
    });
  });

  it('takes a user with a password, a socket and a number', async () => {
    const folder = `/tmp/rookery-redis-${process.pid}.sock`;
    const users = [...'--user rook on >secret ~* &* +@all'.split(' '), ...'--user default off'.split(' ')];
    const redis = await TestRedis.start('--unixsocket', folder, ...users);
    const bus = await connect(redis, { path: folder, username: 'rook', password: 'secret', database: 3 });
    await eventually(() => bus.isUp);
    const wrong = await connect(redis, { username: 'rook', password: 'wrong' });
    expect(wrong.isUp).toBe(false);
    await wrong.close();
    await bus.close();
    await redis.stop();
  });
});
