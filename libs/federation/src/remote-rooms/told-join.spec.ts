import type { RoomEvent } from '@rookery/events';
import { Readable } from 'node:stream';
import { WrongAnswer } from './candidates.js';
import { StateEvents, unsignedPdu } from './state-events.fixture.js';
import { ToldJoin } from './told-join.js';

const memberCount = 10_000;

describe.each(['11', '12'])('the answer to a join of a large room of version %s', (version) => {
  const carol = '@carol:far.test';
  const made = new StateEvents(version, carol, '!r:far.test');
  const { rules } = made;
  const make = made.make.bind(made);
  const create = made.create();
  const founder = make('m.room.member', carol, { membership: 'join' }, [create]);
  const invited = make('m.room.member', '@alice:home.test', { membership: 'invite' }, [create, founder]);
  const open = make('m.room.join_rules', '', { join_rule: 'public' }, [create, founder]);
  const former = make('m.room.member', '@m0:s0.test', { membership: 'join' }, [create, open]);
  const members = Array.from({ length: memberCount }, (_, n) =>
    make(
      'm.room.member',
      `@m${n}:s${n % 7}.test`,
      { membership: 'join' },
      n === 0 ? [create, open, former] : [create, open],
    ),
  );
  const join = make('m.room.member', '@alice:home.test', { membership: 'join' }, [create, open, invited]);
  const everything = [...members, open, invited, founder, create];

  const read = async (
    more: object,
    chain: readonly RoomEvent[] = [create, founder, open, former],
    state: readonly RoomEvent[] = everything,
    maxEvents = memberCount,
  ): Promise<ToldJoin> => {
    const texts = (events: readonly RoomEvent[]): string =>
      events.map((event) => JSON.stringify(unsignedPdu(event))).join();
    const fields = JSON.stringify({ origin: 'far.test', ...more }).slice(0, -1);
    const text = Buffer.from(`${fields},"auth_chain":[${texts(chain)}],"state":[${texts(state)},{"no":"event"}]}`);
    const pieces = Array.from({ length: Math.ceil(text.length / 65_536) }, (_, n) =>
      text.subarray(n * 65_536, (n + 1) * 65_536),
    );
    return ToldJoin.read('far.test', Readable.from(pieces), join, maxEvents);
  };
  const tsOf = (value: unknown): number[] =>
    (value as { origin_server_ts: number }[]).map(({ origin_server_ts: at }) => at);
  const of = (...events: readonly RoomEvent[]): number[] => events.map(({ originServerTs }) => originServerTs);

  it('lies in a file, and is read a few events at a time, each behind those that allow it', async () => {
    const told = await read({ members_omitted: false, event: { content: { n: 1 } } });
    expect([told.isLarge, told.field('members_omitted'), told.field('event'), told.field('origin')]).toEqual([
      ...[true, false, { content: { n: 1 } }, undefined],
    ]);
    expect(told.state).toEqual(new Set(everything.map(({ eventId }) => eventId)));
    expect(told.servers).toEqual(new Set(['far.test', ...Array.from({ length: 7 }, (_, n) => `s${n}.test`)]));
    const seen: number[] = [];
    for (let some = await told.events.next(25); some.length > 0; some = await told.events.next(25)) {
      expect(some.length).toBeLessThanOrEqual(25);
      seen.push(...tsOf(some));
    }
    expect(seen.toSorted((a, b) => a - b)).toEqual(of(...everything, former).toSorted((a, b) => a - b));
    expect(seen.indexOf(former.originServerTs)).toBeLessThan(seen.indexOf(members[0]!.originServerTs));
    await told.close();
  });

  it('gives what the join is judged by without the other members', async () => {
    const told = await read({});
    const { state: part, auth_chain: around } = await told.core();
    expect(new Set(tsOf(part))).toEqual(new Set(of(create, founder, open, invited)));
    expect(around).toEqual([]);
    const whole = await told.whole();
    expect(tsOf(whole['state'])).toEqual(of(...everything));
    expect(tsOf(whole['auth_chain'])).toEqual(of(former));
    await told.close();
  });

  it('gives some of what else may come later, and leaves the rest out', async () => {
    const things = Array.from({ length: 720 }, (_, n) => make('org.example.thing', `${n}`, { n }, [create, founder]));
    const servers = Array.from({ length: 600 }, (_, n) =>
      make('m.space.child', `!${n}:far.test`, {}, [create, founder]),
    );
    const told = await read({}, [create, founder], [create, founder, open, invited, ...things, ...servers]);
    expect(told.isLarge).toBe(true);
    const { state: part } = await told.core();
    const taken = of(create, founder, open, invited, ...things.slice(0, 500), ...servers);
    expect(new Set(tsOf(part))).toEqual(new Set(taken));
    expect(told.state.size).toBe(4 + 720 + 600);
    await told.close();
    const few = await read({}, [create, founder], [create, founder, open, ...things.slice(0, 699)]);
    expect(few.isLarge).toBe(false);
    await few.close();
  });

  it('is not believed where it begins the room twice, nor where it is no such answer', async () => {
    const another = make('m.room.create', '', { room_version: version, other: true }, []);
    if (!rules.createEventImplied) {
      const told = await read({}, [create, another]);
      await expect(told.core()).rejects.toThrow(WrongAnswer);
      await told.close();
    }
    const texts = ['{"state":[]}', '{"state":{},"auth_chain":[]}', '[200,{"state":[],"auth_chain":[]}]', '{'];
    await expect(read({}, [create], members.slice(0, 20), 10)).rejects.toThrow(WrongAnswer);
    for (const text of texts)
      await expect(ToldJoin.read('far.test', Readable.from([Buffer.from(text)]), join, 100)).rejects.toThrow(
        WrongAnswer,
      );
  });
});
