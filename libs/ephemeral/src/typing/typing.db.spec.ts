import { MembershipService } from '@rookery/rooms';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { buildEphemeral, type EphemeralFixture, fixtureMigrations, requesterOf } from '../ephemeral.fixture.js';
import { EphemeralHooks } from '../hooks.js';
import { TypingService } from './typing.service.js';

const alice = requesterOf('alice');
const bob = requesterOf('bob');
const carol = requesterOf('carol');

eachDatabase('typing', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: EphemeralFixture;
  let typing: TypingService;
  let roomId: string;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildEphemeral({ database: test.database, clock });
    typing = fixture.get(TypingService);
  });
  beforeEach(async () => {
    roomId = await fixture.room(alice, bob);
  });
  afterAll(() => fixture.close());

  const since = (after: number, upTo = Infinity): { after: number; upTo: number } => ({ after, upTo });

  it('tells the rooms in which it changed, and nothing else', async () => {
    const quiet = await fixture.room(alice, bob);
    const before = typing.stream.current();
    expect(typing.changes([roomId, quiet], since(before))).toEqual(new Map());
    await typing.setByClient(roomId, alice.userId, true);
    const after = typing.stream.current();
    expect(after).toBeGreaterThan(before);
    expect(typing.changes([roomId, quiet], since(before))).toEqual(new Map([[roomId, [alice.userId]]]));
    expect(typing.changes([roomId, quiet], since(after))).toEqual(new Map());
    await typing.setByClient(roomId, alice.userId, false);
    expect(typing.changes([roomId, quiet], since(after))).toEqual(new Map([[roomId, []]]));
  });

  it('tells a change to who reads up to it, though others know of it before, and to nobody twice', async () => {
    const before = typing.stream.current();
    await typing.setByClient(roomId, alice.userId, true);
    const between = typing.stream.current();
    await typing.setByClient(roomId, bob.userId, true);
    const after = typing.stream.current();
    expect(typing.changes([roomId], since(before, between))).toEqual(new Map());
    const both = new Map([[roomId, [alice.userId, bob.userId]]]);
    expect(typing.changes([roomId], since(between, after))).toEqual(both);
    expect(typing.changes([roomId], since(before, after))).toEqual(both);
    expect(typing.changes(new Set([roomId]), since(after, after))).toEqual(new Map());
  });

  it('says who types now to a client that is new', async () => {
    await typing.setByClient(roomId, bob.userId, true);
    expect(typing.changes([roomId], undefined)).toEqual(new Map([[roomId, [bob.userId]]]));
    expect(typing.changes(['!other:example.org'], undefined)).toEqual(new Map());
  });

  it('ends by itself, and goes on when it is said again', async () => {
    await typing.setByClient(roomId, alice.userId, true, 10_000);
    await clock.advance(8_000);
    const before = typing.stream.current();
    await typing.setByClient(roomId, alice.userId, true, 10_000);
    expect(typing.stream.current()).toBe(before);
    await clock.advance(8_000);
    expect(typing.typists(roomId)).toEqual([alice.userId]);
    await clock.advance(2_001);
    expect(typing.typists(roomId)).toEqual([]);
  });

  it('does not go on for longer than two minutes, whatever the client says', async () => {
    await typing.setByClient(roomId, alice.userId, true, 1e12);
    await clock.advance(119_000);
    expect(typing.typists(roomId)).toEqual([alice.userId]);
    await clock.advance(2_000);
    expect(typing.typists(roomId)).toEqual([]);
  });

  it('refuses who is not in the room, and ends with a leave', async () => {
    await expect(typing.setByClient(roomId, carol.userId, true)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await typing.setByClient(roomId, bob.userId, true);
    await fixture.get(MembershipService).byContent(bob, roomId, bob.userId, { membership: 'leave' });
    expect(typing.typists(roomId)).toEqual([]);
    await expect(typing.setByClient(roomId, bob.userId, true)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
  });

  it('wakes those in the room, and only them', async () => {
    const woken = fixture.notifier.wait(bob.userId, { timeoutMs: 60_000 });
    const asleep = fixture.notifier.wait(carol.userId, { timeoutMs: 60_000 });
    await typing.setByClient(roomId, alice.userId, true);
    expect(await woken).toBe('news');
    await clock.advance(61_000);
    expect(await asleep).toBe('timeout');
  });

  it('tells higher libs about local users, once each way', async () => {
    const told: unknown[] = [];
    fixture.get(EphemeralHooks).subscribe({ typingChanged: (...args) => void told.push(args) });
    await typing.setByClient(roomId, alice.userId, true, 1_000);
    await typing.setByClient(roomId, alice.userId, true, 1_000);
    await typing.setRemote(roomId, '@dora:elsewhere.org', true);
    await clock.advance(1_500);
    expect(told).toEqual([
      [roomId, alice.userId, true],
      [roomId, alice.userId, false],
    ]);
    expect(typing.typists(roomId)).toEqual(['@dora:elsewhere.org']);
  });

  it('keeps tokens valid over a restart, after which nobody is left typing', async () => {
    const quiet = await fixture.room(alice, bob);
    const first = await buildEphemeral({ database: await test.reopen(), clock });
    const before = first.get(TypingService);
    await before.setByClient(roomId, alice.userId, true);
    const token = before.stream.current();
    await first.close();
    const second = await buildEphemeral({ database: await test.reopen(), clock });
    const after = second.get(TypingService);
    expect(after.stream.current()).toBeGreaterThanOrEqual(token);
    expect(after.changes([roomId, quiet], since(token))).toEqual(new Map([[roomId, []]]));
    expect(after.changes([roomId, quiet], undefined)).toEqual(new Map());
    expect(after.changes([roomId, quiet], since(after.stream.current()))).toEqual(new Map());
    await after.setByClient(roomId, bob.userId, true);
    expect(after.changes([roomId, quiet], since(token))).toEqual(new Map([[roomId, [bob.userId]]]));
    await after.setByClient(roomId, bob.userId, false);
    await second.close();
    const third = await buildEphemeral({ database: await test.reopen(), clock });
    expect(third.get(TypingService).changes([roomId], since(token))).toEqual(new Map());
    await third.close();
  });
});
